package controlplane_test

import (
	"context"
	"sync/atomic"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// ofListeners are constraints for Listeners alone.
func ofListeners(t testing.TB, text string) dynparam.ByType {
	t.Helper()
	byType, err := dynparam.NewByType(map[string]dynparam.Constraints{"envoy.config.listener.v3.Listener": xdstest.Constraints(text)})
	xdstest.NoError(t, err)
	return byType
}

// "Server-Specified Constraints": DPDS has a service of its own, too.
func TestTP2_DPDSService(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	controlplane.SetPace(s.store, 2) // which is the most that a Fetch may have
	direct := ofListeners(t, "way=direct")
	s.update(t, func(tx *controlplane.Tx) {
		tx.SetDPDS(dpdsName, func(*corepb.Node) (dynparam.ByType, error) { return direct, nil })
	})
	node := &corepb.Node{Id: "node"}

	for _, method := range []string{"StreamDynamicParameterConstraints", "DeltaDynamicParameterConstraints"} {
		c := openClient(t, s.conn, dpdsService+method)
		c.request(request{node: node, names: []string{dpdsName}})
		if r := c.next(); r.typeURL != dynparam.MapTypeURL || len(r.values) != 1 {
			t.Errorf("%s: %v", method, r)
		}
		c.subscribe(lds)
		if err := c.end(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: a request for Listeners ended the stream with %v", method, err)
		}
	}

	resp := new(discoverypb.DiscoveryResponse)
	req := &discoverypb.DiscoveryRequest{Node: node, ResourceNames: []string{dpdsName, "missing"}}
	xdstest.NoError(t, s.conn.Invoke(testContext(t), dpdsService+"FetchDynamicParameterConstraints", req, resp, grpc.WaitForReady(true)))
	if len(resp.GetResources()) != 1 || len(resp.GetResourceErrors()) != 1 || resp.GetResourceErrors()[0].GetResourceName().GetName() != "missing" {
		t.Errorf("Fetch: %v", resp)
	}
}

// Fetch waits for the source of a store on demand: for the names that it has an answer for, and the
// others.
func TestDPDS_FetchOnDemand(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	ctx, cancel := context.WithCancel(testContext(t))
	ended := make(chan string, 10)
	s.store.OnDemand(dynparam.MapTypeURL, func(begun, over []*controlplane.Demand) {
		if _, err := s.store.Update(func(tx *controlplane.Tx) {
			for _, d := range begun {
				switch d.Name {
				case "a":
					tx.Answer(d, given(t, "1", "a", variant(dynparam.MapTypeURL, "")))
				case "b":
					tx.AnswerError(d, status.New(codes.Internal, "no"))
				default:
					cancel()
				}
			}
		}); err != nil {
			t.Error(err)
		}
		for _, d := range over {
			ended <- d.Name
		}
	})
	fetch := func(names ...string) (*discoverypb.DiscoveryResponse, error) {
		resp := new(discoverypb.DiscoveryResponse)
		req := &discoverypb.DiscoveryRequest{ResourceNames: names}
		return resp, s.conn.Invoke(ctx, dpdsService+"FetchDynamicParameterConstraints", req, resp, grpc.WaitForReady(true))
	}
	if resp, err := fetch("a", "b"); err != nil || len(resp.GetResources()) != 1 || len(resp.GetResourceErrors()) != 1 {
		t.Errorf("got %v, %v, want a resource and an error", resp, err)
	}
	if one, other := receive(t, ended), receive(t, ended); one == other {
		t.Errorf("the demand for %q ended twice", one)
	}
	if _, err := fetch("late"); status.Code(err) != codes.Canceled {
		t.Errorf("got %v, want CANCELLED", err)
	}
	xdstest.Equal(t, "demand that ended", "late", receive(t, ended))
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// "Migrating From Node Metadata": what a client without constraints gets is chosen by its node. Those of some nodes can be asked for again.
func TestServer_RefreshNodeConstraints(t *testing.T) {
	t.Parallel()
	direct, byProxy := ofListeners(t, "way=direct"), ofListeners(t, "way=by proxy")
	var way atomic.Pointer[dynparam.ByType]
	way.Store(&direct)
	s := startServer(t, controlplane.Options{NodeConstraints: func(*corepb.Node) dynparam.ByType { return *way.Load() }})
	s.setVariant(t, lds, "l", "direct", "way", "direct")
	s.setVariant(t, lds, "l", "by proxy", "way", "by proxy")
	one, two := s.open(t), s.openDelta(t)
	for id, c := range map[string]*client{"one": one, "two": two} {
		c.identify(id, lds, "l")
		xdstest.Equal(t, "what "+id+" has", []string{"direct"}, c.next().values)
	}
	way.Store(&byProxy)
	s.control.RefreshNodeConstraints(func(node *corepb.Node) bool { return node.GetId() == "two" })
	xdstest.Equal(t, "what two has", []string{"by proxy"}, two.next().values)
	one.fence()
	s.control.RefreshNodeConstraints(nil)
	xdstest.Equal(t, "what one has", []string{"by proxy"}, one.next().values)
	two.fence()
}

func TestTx_DPDSFaults(t *testing.T) {
	t.Parallel()
	of := func(*corepb.Node) (dynparam.ByType, error) { return dynparam.ByType{}, nil }
	for _, change := range []func(*controlplane.Tx){
		func(tx *controlplane.Tx) { tx.SetDPDS("", of) },
		func(tx *controlplane.Tx) { tx.SetDPDS("*", of) },
		func(tx *controlplane.Tx) { tx.SetDPDS("xdstp://a/T/*", of) },
		func(tx *controlplane.Tx) { tx.SetDPDS("n", nil) },
		func(tx *controlplane.Tx) { tx.SetDPDS("xdstp://a/envoy.config.listener.v3.Listener/n", of) }, // clients refuse it
		func(tx *controlplane.Tx) { tx.SetNamed("n", parameters("\xff", "x"), variant(rds, "x")) },
		func(tx *controlplane.Tx) { tx.DeleteVariant(rds, "n", parameters("k", "\xff")) },
		func(tx *controlplane.Tx) { tx.SetVariantError(rds, "n", nil, nil) },
		func(tx *controlplane.Tx) {
			tx.SetVariantError(rds, "xdstp://a/T/*", nil, status.New(codes.Internal, "x"))
		},
	} {
		store := controlplane.NewStore()
		if version, err := store.Update(change); err == nil || version != 0 {
			t.Errorf("version %d, error %v", version, err)
		}
	}
}

const dpdsName = "xdstp://xds.example.com/envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap/x"
