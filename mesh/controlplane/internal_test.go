package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// newTestUsage returns the usage of the only stream of a server.
func newTestUsage() *streamUsage { return usageOf(newQuotas(bounds.Streams, nil)) }

func usageOf(q *quotas) *streamUsage {
	u, err := q.open(nil, 1<<20)
	if err != nil {
		panic(err)
	}
	return u
}

// newTestStream returns the only stream of a server.
func newTestStream(store *Store, protocol Protocol, opts Options) *stream {
	opts.WrapResources, opts.NotFoundErrors = true, true
	opts.MaxResponseSize = cmp.Or(opts.MaxResponseSize, 1<<20)
	return newStream(context.Background(), 1, protocol, store, &opts, newTestUsage())
}

func newTestSotW(store *Store) *sotw {
	return &sotw{stream: newTestStream(store, ProtocolSotW, Options{})}
}

func request(typeURL string, names ...string) *discoverypb.DiscoveryRequest {
	return &discoverypb.DiscoveryRequest{TypeUrl: typeURL, ResourceNames: names}
}

func mustHandle(t testing.TB, p *sotw, req *discoverypb.DiscoveryRequest) {
	t.Helper()
	xdstest.NoError(t, p.handleRequest(req))
}

// discard pushes what is due, and returns the number of resources sent.
func discard(t testing.TB, p *sotw) (resources int) {
	t.Helper()
	if err := push(p.stream, p, func(resp *discoverypb.DiscoveryResponse) error {
		resources += len(resp.GetResources())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return resources
}

func TestStore_ForgetsStreamsThatEnded(t *testing.T) {
	t.Parallel()
	store := NewStore()
	update(t, store, func(tx *Tx) { tx.Set(&routepb.RouteConfiguration{Name: "r"}) })
	p := newTestSotW(store)
	mustHandle(t, p, request(typeurl.RouteConfiguration, "r", "missing"))
	mustHandle(t, p, request(typeurl.Cluster))
	mustHandle(t, p, request("invented/1", "a"))
	mustHandle(t, p, request("invented/2"))
	if got := len(store.tables); got != 4 {
		t.Errorf("%d tables while the stream lives, want 4", got)
	}

	store.release(p.stream)
	// A last request in progress.
	for _, req := range []*discoverypb.DiscoveryRequest{request(typeurl.RouteConfiguration, "r", "later"), request("invented/3", "a")} {
		if err := p.handleRequest(req); err != errClosed {
			t.Errorf("the stream that has ended takes a request: %v", err)
		}
	}

	routes := store.tables[typeurl.RouteConfiguration]
	if len(store.tables) != 1 || len(routes.asks.m) != 0 {
		t.Errorf("%d tables, %d names are left", len(store.tables), len(routes.asks.m))
	}
}

// FuzzSotW_Requests sends any requests to a stream, between updates, and compares the store's index with
// the subscriptions.
func FuzzSotW_Requests(f *testing.F) {
	for _, req := range []*discoverypb.DiscoveryRequest{
		request(typeurl.Cluster), request(typeurl.Cluster, "*", "a"), request(typeurl.RouteConfiguration, "a", "a", ""), request(""),
		{TypeUrl: typeurl.Cluster, ResponseNonce: "x", Node: &corepb.Node{ClientFeatures: []string{wrapFeature}}},
	} {
		data, err := proto.Marshal(req)
		xdstest.NoError(f, err)
		f.Add(data, data, true)
	}
	f.Fuzz(func(t *testing.T, first, second []byte, echoNonce bool) {
		store := NewStore()
		p := newTestSotW(store)
		for i, data := range [][]byte{first, second, first} {
			req := new(discoverypb.DiscoveryRequest)
			if proto.Unmarshal(data, req) != nil {
				return
			}
			if echoNonce && i > 0 {
				if sub := p.subs[req.GetTypeUrl()]; sub != nil {
					req.ResponseNonce = sub.delivery.nonce
				}
			}
			if !acceptable(t, p.handleRequest(req)) {
				return
			}
			setAny(t, store, req, fmt.Sprint(i))
			for _, b := range p.collect() {
				p.number(&b)
				if resp := p.response(&b); resp.GetNonce() == "" || resp.GetVersionInfo() == "" {
					t.Fatalf("response without nonce or version: %v", resp)
				}
			}
			checkIndex(t, store, p.stream)
		}
		checkRelease(t, store, p.stream)
	})
}

// checkRelease ends a stream, which leaves no subscriptions.
func checkRelease(t *testing.T, store *Store, s *stream) {
	t.Helper()
	store.release(s)
	for typeURL, table := range store.tables {
		if len(table.asks.m) > 0 {
			t.Fatalf("%s: subscriptions are left", typeURL)
		}
		if len(table.index.asks.of)+len(table.index.subs.of) > 0 {
			t.Fatalf("%s: numbers are left: %+v", typeURL, table.index)
		}
	}
}

// setAny stores something under each requested name that allows it.
func setAny(t *testing.T, store *Store, req *discoverypb.DiscoveryRequest, value string) {
	t.Helper()
	for _, name := range req.GetResourceNames() {
		if name == "" || name == wildcardName || keyOf(name).isGlob() {
			continue
		}
		update(t, store, func(tx *Tx) {
			tx.SetNamed(name, nil, &anypb.Any{TypeUrl: req.GetTypeUrl(), Value: []byte(value)})
		})
	}
}

func checkIndex(t *testing.T, store *Store, s *stream) {
	t.Helper()
	names := len(s.subs)
	for typeURL, sub := range s.subs {
		names += len(sub.names)
		table := store.tables[typeURL]
		indexed := 0
		for a := range sub.asks() {
			if tp := sub.topicOf(a); !a.hasSub(sub) || sub.askOf(tp) != a || table.index.asks.get(a.number) != a {
				t.Fatalf("%s: %q is subscribed and not in the index", typeURL, a.spelling)
			}
		}
		if table.index.subs.get(sub.number) != sub {
			t.Fatalf("%s: the number %d is another subscription's", typeURL, sub.number)
		}
		if table == nil {
			continue
		}
		for key, asks := range table.asks.m {
			indexed += len(asks)
			for _, a := range asks {
				checkAsk(t, table, key, a)
			}
		}
		if indexed != len(sub.names) {
			t.Fatalf("%s: %d names in the index, %d subscribed", typeURL, indexed, len(sub.names))
		}
	}
	if names != s.usage.names {
		t.Fatalf("%d names are counted, used are %d", s.usage.names, names)
	}
}

// checkAsk compares an ask's choice with a search of all variants.
func checkAsk(t *testing.T, table *table, key nameKey, a *ask) {
	t.Helper()
	want, _ := table.slots[key].choose(a.constraints)
	if a.refused != nil {
		want = a.refused.entry
	}
	if a.choice != want && (key != wildcardKey || !hasWildcard(table.typeURL)) {
		t.Fatalf("%s: %+v with %v has %+v, want %+v", table.typeURL, key, a.constraints, a.choice, want)
	}
}

// Clients that hold Store.mu one after the other do not hold up an update for each of its names.
func TestUpdateCollectsWithoutTheLock(t *testing.T) {
	t.Parallel()
	s := NewStore()
	_, err := s.Update(func(tx *Tx) {
		tx.Delete(typeurl.RouteConfiguration, "x")
		tx.SetNamed("a", nil, &routepb.RouteConfiguration{Name: "a"})
		s.mu.Lock()
		defer s.mu.Unlock()
		tx.SetNamed("b", nil, &routepb.RouteConfiguration{Name: "b"})
	})
	if err != nil || s.Get(typeurl.RouteConfiguration, "b") == nil {
		t.Errorf("the update of a and b: %v", err)
	}
}
