package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/dynwire"
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

// "DPDS Example": the client's constraints, and an update of them.
func TestTP2_DPDSExample(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		p := newPolicy("one", "direct", "two", "direct")
		s.update(t, func(tx *controlplane.Tx) { tx.SetDPDS(dpdsName, p.of) })
		s.setVariant(t, lds, "l", "direct", "listener_type", "direct")
		s.setVariant(t, lds, "l", "proxy", "listener_type", "via_proxy")
		clients := map[string]*tp2Client{}
		dpds, listener := map[string]*holding{}, map[string]*holding{}
		for _, id := range []string{"one", "two"} {
			c := open(id)
			clients[id] = c
			dpds[id] = c.subscribe(dynparam.MapTypeURL, dpdsName, unconstrained)
			c.settle()
			listener[id] = c.subscribe(lds, "l", learned(t, dpds[id], lds))
			c.wants(listener[id], "direct")
		}

		// The answer of one client changes. Nobody else is sent anything.
		p.set("one", "via_proxy")
		s.store.RefreshDPDS(dpdsName, nil)
		for id, want := range map[string]string{"one": "proxy", "two": "direct"} {
			c := clients[id]
			c.settle()
			now := learned(t, dpds[id], lds)
			if !now.Equal(listener[id].ask.constraints) {
				listener[id] = c.move([]ask{{lds, "l", now}}, []ask{listener[id].ask})[0]
			}
			c.wants(listener[id], want)
		}
		if one, two := clients["one"].responses[dynparam.MapTypeURL], clients["two"].responses[dynparam.MapTypeURL]; one != 2 || two != 1 {
			t.Errorf("DPDS responses: %d and %d, want 2 and 1", one, two)
		}
	})
}

// RefreshDPDS applies to the given name and clients, and a new function replaces
// the answers of the old one.
func TestStore_RefreshDPDS(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		p := newPolicy("one", "a", "two", "a")
		s.update(t, func(tx *controlplane.Tx) { tx.SetDPDS(dpdsName, p.of) })
		one, two := open("one"), open("two")
		first, second := one.subscribe(dynparam.MapTypeURL, dpdsName, unconstrained), two.subscribe(dynparam.MapTypeURL, dpdsName, unconstrained)
		one.settle()
		two.settle()
		check := func(when, wantFirst, wantSecond string) {
			t.Helper()
			one.settle()
			two.settle()
			for h, want := range map[*holding]string{first: wantFirst, second: wantSecond} {
				if got := learned(t, h, lds); !got.Equal(exactly(t, "listener_type", want)) {
					t.Errorf("%s: got %v, want %q", when, got, want)
				}
			}
		}
		check("at first", "a", "a")
		p.set("one", "b")
		p.set("two", "b")
		s.store.RefreshDPDS(dpdsName, func(node *corepb.Node) bool { return node.GetId() == "one" })
		check("one was refreshed", "b", "a")
		s.store.RefreshDPDS("another name", nil)
		check("another name was refreshed", "b", "a")
		s.store.RefreshDPDS("", nil)
		check("all were refreshed", "b", "b")
		calls := p.calls.Load()
		s.set(t, cluster("c"))
		check("something else changed", "b", "b")
		if got := p.calls.Load(); got != calls {
			t.Errorf("the function was called %d times for a change of something else", got-calls)
		}
		s.update(t, func(tx *controlplane.Tx) { tx.SetDPDS(dpdsName, newPolicy("one", "c", "two", "b").of) })
		check("the function was replaced", "c", "b")
		if got := two.responses[dynparam.MapTypeURL]; got != 2 {
			t.Errorf("%d responses to the second client, want 2", got)
		}
	})
}

// "Non-Cacheability of DPDS": "Servers must always set the Resource.do_not_cache
// field when sending this resource." That takes a Resource on every stream.
func TestTP2_DPDSIsNotCacheable(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		s.update(t, func(tx *controlplane.Tx) {
			tx.SetDPDS("computed", newPolicy("node", "direct").of)
			tx.SetNamed("stored", nil, dynparam.ByType{}.ToProto())
		})
		for _, name := range []string{"computed", "stored"} {
			for _, locators := range [][]*discoverypb.ResourceLocator{nil, {{Name: name}}} {
				w := open("node").wire
				w.request(dynparam.MapTypeURL, []string{name}, locators...)
				r := w.receive().resources[0]
				if !r.GetCacheControl().GetDoNotCache() || r.GetName() != name || r.GetVersion() == "" {
					t.Errorf("%s was sent as %v", name, r)
				}
				if _, err := dynwire.UnmarshalMap(r.GetResource()); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// "Server-Specified Constraints": if the client cannot obtain the DPDS resource,
// it asks without constraints, and "the control plane is free to return any
// variant".
func TestTP2_DPDSCannotBeObtained(t *testing.T) {
	eachVariant(t, controlplane.Options{NotFoundErrors: true}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		s.update(t, func(tx *controlplane.Tx) { tx.SetDPDS(dpdsName, newPolicy("a", "denied", "b", "broken").of) })
		s.setVariant(t, lds, "l", "direct", "listener_type", "direct")
		s.setVariant(t, lds, "l", "proxy", "listener_type", "via_proxy")
		missing := `NotFound: the control plane has no resource "missing" of type ` + dynparam.MapTypeURL
		for _, tt := range []struct{ node, name, want string }{
			{"a", dpdsName, "PermissionDenied: no constraints for you"},
			{"b", dpdsName, "Unknown: no status"},
			{"c", "missing", missing},
		} {
			c := open(tt.node)
			want := tt.want
			if isDelta(c) && tt.name == "missing" {
				want = nothing
			}
			c.wants(c.subscribe(dynparam.MapTypeURL, tt.name, unconstrained), want)
			c.wants(c.subscribe(lds, "l", unconstrained), "direct")
		}
	})
}

// A refresh during a call of the function counts: the client's last answer is of the newest state.
func TestStore_RefreshDPDSDuringTheFunction(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		p := newPolicy("n", "old")
		entered, leave := make(chan struct{}), make(chan struct{})
		var once sync.Once
		slow := func(node *corepb.Node) (dynparam.ByType, error) {
			answer, err := p.of(node)
			once.Do(func() {
				close(entered)
				<-leave
			})
			return answer, err
		}
		s.update(t, func(tx *controlplane.Tx) { tx.SetDPDS(dpdsName, slow) })
		c := open("n")
		h := c.subscribe(dynparam.MapTypeURL, dpdsName, unconstrained)
		<-entered
		p.set("n", "new")
		s.store.RefreshDPDS(dpdsName, nil)
		close(leave)
		c.settle()
		if got := learned(t, h, lds); !got.Equal(exactly(t, "listener_type", "new")) {
			t.Errorf("the client was sent %v", got)
		}
	})
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
	const globbed = "xdstp://a/envoy.config.listener.v3.Listener/d/x"
	for _, name := range []string{"l", globbed} {
		s.setVariant(t, lds, name, "direct", "listener_type", "direct")
		s.setVariant(t, lds, name, "via_proxy", "listener_type", "via_proxy")
	}
	s.setVariant(t, lds, "same", "same")
	type subscriber struct {
		*client
		node, name string
	}
	var all []subscriber
	for _, id := range []string{"one", "two"} {
		for _, name := range []string{"l", "*", "xdstp://a/envoy.config.listener.v3.Listener/d/*"} {
			open := []*client{s.openDelta(t)}
			if name == "l" || name == "*" {
				open = append(open, s.open(t))
			}
			for _, c := range open {
				c.identify(id, lds, name)
				all = append(all, subscriber{c, id, name})
			}
		}
	}
	check := func(of string, want map[string]string) {
		t.Helper()
		for _, sub := range all {
			if of != "" && sub.node != of {
				sub.fence()
				continue
			}
			got := sub.next().values
			for _, value := range got {
				if value != want[sub.node] && value != "same" {
					t.Errorf("%s has %q of %q, want %q", sub.node, value, sub.name, want[sub.node])
				}
			}
			if len(got) == 0 || sub.name == "*" && len(got) < 2 {
				t.Errorf("%s got %v of %q", sub.node, got, sub.name)
			}
			sub.fence()
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

	// Who speaks for itself is not asked about.
	c := newTP2Client(t, s, newTP2Delta(t, s, "two"))
	c.wants(c.subscribe(lds, "l", exactly(t, "listener_type", "via_proxy")), "via_proxy")
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

// The variants of a name, and the error of the whole of it, in one update and over
// several.
func TestTx_Variants(t *testing.T) {
	t.Parallel()
	store := controlplane.NewStore()
	set := func(tx *controlplane.Tx, content string, pairs ...string) {
		tx.SetNamed("r", parameters(pairs...), variant(rds, content))
	}
	broken := status.New(codes.Internal, "broken")
	steps := []struct {
		name   string
		change func(*controlplane.Tx)
		want   []string // contents in order of parameters
		failed bool
	}{
		{"two variants and none", func(tx *controlplane.Tx) { set(tx, "none"); set(tx, "a", "k", "a"); set(tx, "b", "k", "b") }, []string{"none", "a", "b"}, false},
		{"Set replaces the one without parameters", func(tx *controlplane.Tx) { set(tx, "none 2") }, []string{"none 2", "a", "b"}, false},
		{"DeleteVariant", func(tx *controlplane.Tx) { tx.DeleteVariant(rds, "r", parameters("k", "a")) }, []string{"none 2", "b"}, false},
		{"SetError stands for all", func(tx *controlplane.Tx) { tx.SetError(rds, "r", broken) }, nil, true},
		{"a variant ends it", func(tx *controlplane.Tx) { set(tx, "b", "k", "b") }, []string{"b"}, false},
		{"SetError, then a variant", func(tx *controlplane.Tx) { tx.SetError(rds, "r", broken); set(tx, "c", "k", "c") }, []string{"c"}, false},
		{"SetVariantError stands for one", func(tx *controlplane.Tx) { tx.SetVariantError(rds, "r", nil, broken) }, []string{"c"}, true},
		{"and stays beside others", func(tx *controlplane.Tx) { set(tx, "d", "k", "d") }, []string{"c", "d"}, true},
		{"Delete, then a variant", func(tx *controlplane.Tx) { tx.Delete(rds, "r"); set(tx, "e", "k", "e") }, []string{"e"}, false},
		{"Delete", func(tx *controlplane.Tx) { tx.Delete(rds, "r") }, nil, false},
	}
	for _, step := range steps {
		mustUpdate(t, store, step.change)
		var got []string
		for _, r := range store.Variants(rds, "r") {
			got = append(got, string(r.Any().GetValue()))
		}
		if failed := store.Error(rds, "r") != nil; !slices.Equal(got, step.want) || failed != step.failed {
			t.Errorf("%s: variants %q, want %q; error: %t", step.name, got, step.want, failed)
		}
	}
}

// What was stored after a DPDS resource is not sent before the constraints computed for the client:
// otherwise the client could lose its variant before it gets the constraints for the next one.
func TestDPDSIsSentBeforeLaterChanges(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		const last = 3000
		store := func(i int) {
			value := fmt.Sprintf("%06d", i)
			s.update(t, func(tx *controlplane.Tx) {
				tx.SetDPDS(dpdsName, newPolicy("n", value).of)
			})
			s.setVariant(t, rds, "r", value)
		}
		store(0)
		c := open("n")
		dpds, r := c.subscribe(dynparam.MapTypeURL, dpdsName, unconstrained), c.subscribe(rds, "r", unconstrained)
		c.settle()
		var storing sync.WaitGroup
		storing.Go(func() {
			for i := range last {
				store(i + 1)
			}
		})
		defer storing.Wait()
		for r.has != fmt.Sprintf("%06d", last) {
			c.wire.take(c)
			of, ok := learned(t, dpds, lds).Parameters()
			value, has := of.Get("listener_type")
			if !ok || !has || value < r.has {
				t.Fatalf("the client has what was stored after the DPDS resource %s, and of that %v", r.has, of)
			}
		}
	})
}

// A slow decision about the constraints of one name does not hold back what a client has subscribed to already.
func TestSlowDecisionAboutConstraints(t *testing.T) {
	const slow = "slow-constraints"
	asked, decide := make(map[string]chan struct{}), make(map[string]chan struct{}) // by node
	for _, node := range []string{"SotW", "delta"} {
		asked[node], decide[node] = make(chan struct{}), make(chan struct{})
	}
	opts := controlplane.Options{Authorize: func(ctx context.Context, node *corepb.Node, _, name string) error {
		if name != slow {
			return nil
		}
		close(asked[node.GetId()])
		select {
		case <-decide[node.GetId()]:
		case <-ctx.Done():
		}
		return nil
	}}
	eachVariant(t, opts, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		node := path.Base(t.Name())
		s.setVariant(t, rds, "r", "1")
		c := open(node)
		r := c.subscribe(rds, "r", unconstrained)
		c.settle()
		c.subscribe(dynparam.MapTypeURL, slow, unconstrained)
		<-asked[node]
		s.setVariant(t, rds, "r", "2")
		for r.has != "2" {
			c.wire.take(c)
		}
		close(decide[node])
		c.settle()
	})
}

const dpdsName = "xdstp://xds.example.com/envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap/x"

// learned are the constraints that the client was sent for a type.
func learned(t *testing.T, h *holding, typeURL string) dynparam.Constraints {
	t.Helper()
	m, err := dynwire.UnmarshalMap(variant(dynparam.MapTypeURL, h.has))
	xdstest.NoError(t, err)
	byType, err := dynparam.ByTypeFromProto(m)
	xdstest.NoError(t, err)
	return byType.For(typeURL)
}
