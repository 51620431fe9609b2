package controlplane_test

import (
	"context"
	"errors"
	"slices"
	"sync"
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

// policy has the listener_type of each node.
type policy struct {
	mu    sync.Mutex
	types map[string]string
	calls atomic.Int32
}

func newPolicy(pairs ...string) *policy { return &policy{types: parameters(pairs...)} }

func (p *policy) set(id, listenerType string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.types[id] = listenerType
}

// of is for DPDS: "denied" is an error.
func (p *policy) of(node *corepb.Node) (dynparam.ByType, error) {
	p.calls.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch value := p.types[node.GetId()]; value {
	case "":
		return dynparam.ByType{}, nil
	case "denied":
		return dynparam.ByType{}, status.Error(codes.PermissionDenied, "no constraints for you")
	case "broken":
		return dynparam.ByType{}, errors.New("no status")
	default:
		c, err := dynparam.Exact(parameters("listener_type", value))
		if err != nil {
			return dynparam.ByType{}, err
		}
		return dynparam.NewByType(map[string]dynparam.Constraints{"envoy.config.listener.v3.Listener": c})
	}
}

// "Server-Specified Constraints": DPDS has a service of its own, too.
func TestTP2_DPDSService(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.update(t, func(tx *controlplane.Tx) { tx.SetDPDS(dpdsName, newPolicy("node", "direct").of) })
	node := &corepb.Node{Id: "node"}

	sotw := newRawClient(t, openTwin[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse](s.conn, dpdsService+"StreamDynamicParameterConstraints"))
	sotw.send(&discoverypb.DiscoveryRequest{Node: node, ResourceNames: []string{dpdsName}})
	if resp := sotw.recv(); resp.GetTypeUrl() != dynparam.MapTypeURL || len(resp.GetResources()) != 1 {
		t.Errorf("SotW: %v", resp)
	}
	sotw.send(&discoverypb.DiscoveryRequest{TypeUrl: lds})
	if err := sotw.end(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a request for Listeners ended the stream with %v", err)
	}

	delta := newRawClient(t, openTwin[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse](s.conn, dpdsService+"DeltaDynamicParameterConstraints"))
	delta.send(&discoverypb.DeltaDiscoveryRequest{Node: node, ResourceNamesSubscribe: []string{dpdsName}})
	if resp := delta.recv(); resp.GetTypeUrl() != dynparam.MapTypeURL || len(resp.GetResources()) != 1 {
		t.Errorf("delta: %v", resp)
	}
	delta.send(&discoverypb.DeltaDiscoveryRequest{TypeUrl: lds})
	if err := delta.end(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a request for Listeners ended the stream with %v", err)
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
	src := newSource(t, s.store, dynparam.MapTypeURL)
	fetched := make(chan *discoverypb.DiscoveryResponse)
	ctx, cancel := context.WithCancel(testContext(t))
	go func() {
		resp := new(discoverypb.DiscoveryResponse)
		req := &discoverypb.DiscoveryRequest{ResourceNames: []string{"a", "b"}}
		if err := s.conn.Invoke(ctx, dpdsService+"FetchDynamicParameterConstraints", req, resp, grpc.WaitForReady(true)); err != nil {
			t.Error(err)
		}
		fetched <- resp
	}()
	d := src.wantBegun("a", "b")
	src.answer(d[0], given(t, "1", "a", variant(dynparam.MapTypeURL, "")))
	src.fail(d[1], codes.Internal, "no")
	if resp := <-fetched; len(resp.GetResources()) != 1 || len(resp.GetResourceErrors()) != 1 {
		t.Errorf("got %v, want a resource and an error", resp)
	}
	if one, other := receive(t, src.ended), receive(t, src.ended); one.Name == other.Name {
		t.Errorf("the demand for %q ended twice", one.Name)
	}

	go func() {
		err := s.conn.Invoke(ctx, dpdsService+"FetchDynamicParameterConstraints", &discoverypb.DiscoveryRequest{ResourceNames: []string{"late"}}, new(discoverypb.DiscoveryResponse))
		if status.Code(err) != codes.Canceled {
			t.Errorf("got %v, want CANCELLED", err)
		}
		close(fetched)
	}()
	late := src.wantBegun("late")[0]
	cancel()
	<-fetched
	src.wantEnded(late)
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// "Migrating From Node Metadata": what a client without constraints gets is chosen
// by its node.
func TestServer_NodeConstraints(t *testing.T) {
	t.Parallel()
	p := newPolicy("one", "direct", "two", "via_proxy")
	s := startServer(t, controlplane.Options{NodeConstraints: func(node *corepb.Node) dynparam.ByType {
		byType, err := p.of(node)
		if err != nil {
			t.Error(err)
		}
		return byType
	}})
	s.setVariant(t, lds, "l", "direct", "listener_type", "direct")
	s.setVariant(t, lds, "l", "via_proxy", "listener_type", "via_proxy")
	clients := map[string][]*client{}
	for _, id := range []string{"one", "two"} {
		clients[id] = []*client{s.open(t), s.openDelta(t)}
		for _, c := range clients[id] {
			c.identify(id, lds, "l")
		}
	}
	check := func(of string, want map[string]string) {
		t.Helper()
		for id, open := range clients {
			for _, c := range open {
				if of == "" || id == of {
					if got := c.next().values; !slices.Equal(got, []string{want[id]}) {
						t.Errorf("%s has %q, want %q", id, got, want[id])
					}
				}
				c.fence()
			}
		}
	}
	check("", map[string]string{"one": "direct", "two": "via_proxy"})

	p.set("one", "via_proxy")
	s.control.RefreshNodeConstraints(nil)
	check("one", map[string]string{"one": "via_proxy"})

	// The policy changes for both, and one is asked about.
	p.set("one", "direct")
	p.set("two", "direct")
	s.control.RefreshNodeConstraints(func(node *corepb.Node) bool { return node.GetId() == "two" })
	check("two", map[string]string{"two": "direct"})
}

func TestTx_DPDSFaults(t *testing.T) {
	t.Parallel()
	of := newPolicy().of
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
