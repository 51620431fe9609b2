package controlplane

import (
	"fmt"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// benchClients makes delta streams that subscribed to the name with constraints.
func benchClients(b *testing.B, store *Store, streams int, locator func(i int) *discoverypb.ResourceLocator) []*delta {
	b.Helper()
	var clients []*delta
	for i := range streams {
		p := newDelta(newStream(uint64(i), ProtocolDelta, store, nil, limits{names: 1 << 20, bytes: 1 << 30}, nil), defaultMaxResponseSize)
		handleDelta(b, p, &discoverypb.DeltaDiscoveryRequest{
			TypeUrl: typeurl.Endpoints, ResourceLocatorsSubscribe: []*discoverypb.ResourceLocator{locator(i)},
		})
		pushed(b, p)
		clients = append(clients, p)
	}
	return clients
}

func benchVariant(tx *Tx, name, key, value string, n int) {
	tx.SetNamed(name, map[string]string{key: value}, &anypb.Any{TypeUrl: typeurl.Endpoints, Value: fmt.Append(nil, "endpoints ", n)})
}

// One variant of two changes, and 1,000 streams with equal constraints have it:
// one choice, 1,000 responses of one encoded resource. A variant that no stream
// has costs one comparison for all of them together.
func BenchmarkStore_OneVariantTo1000Streams(b *testing.B) {
	const streams = 1_000
	store := NewStore()
	update(b, store, func(tx *Tx) {
		benchVariant(tx, "e", "env", "prod", 0)
		benchVariant(tx, "e", "env", "test", 0)
	})
	clients := benchClients(b, store, streams, func(int) *discoverypb.ResourceLocator { return fuzzLocator("e", "env", "prod") })
	n := 0
	change := func(b *testing.B, env string) {
		n++
		update(b, store, func(tx *Tx) { benchVariant(tx, "e", "env", env, n) })
	}
	b.Run("a variant that they have", func(b *testing.B) {
		b.ReportAllocs()
		sent := 0
		for b.Loop() {
			change(b, "prod")
			sent = 0
			for _, p := range clients {
				if err := p.push(func(resp *discoverypb.DeltaDiscoveryResponse) error {
					sent += len(resp.GetResources())
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			}
		}
		if sent != streams {
			b.Fatalf("%d resources were sent to %d streams", sent, streams)
		}
	})
	b.Run("another variant", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			change(b, "test")
		}
		for _, p := range clients {
			if len(p.dueSubs) > 0 {
				b.Fatal("a stream is due that has another variant")
			}
		}
	})
}

// One variant changes of the 10,000 of a name, each of which one stream of 10,000
// has: the subsets of endpoints of TP2's "Sharding Endpoints".
func BenchmarkStore_OneOf10000Subsets(b *testing.B) {
	const subsets = 10_000
	store := NewStore()
	update(b, store, func(tx *Tx) {
		for i := range subsets {
			benchVariant(tx, "e", "subset_id", fmt.Sprint(i), 0)
		}
	})
	clients := benchClients(b, store, subsets, func(i int) *discoverypb.ResourceLocator {
		return fuzzLocator("e", "subset_id", fmt.Sprint(i))
	})
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		update(b, store, func(tx *Tx) { benchVariant(tx, "e", "subset_id", fmt.Sprint(n%subsets), n+1) })
		if got := pushed(b, clients[n%subsets]); len(got) != 1 {
			b.Fatalf("%d responses", len(got))
		}
	}
}

// One resource of many changes, of which a stream has all: the cost is the same
// whatever else is there.
func BenchmarkStore_OneVariantAmongResources(b *testing.B) {
	for _, resources := range []int{100, 10_000} {
		b.Run(fmt.Sprint(resources), func(b *testing.B) {
			store := NewStore()
			req := &discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Endpoints}
			update(b, store, func(tx *Tx) {
				for i := range resources {
					name := fmt.Sprint("e", i)
					benchVariant(tx, name, "env", "prod", 0)
					req.ResourceLocatorsSubscribe = append(req.ResourceLocatorsSubscribe, fuzzLocator(name, "env", "prod"))
				}
			})
			p := newDelta(newStream(1, ProtocolDelta, store, nil, limits{names: 1 << 20, bytes: 1 << 30}, nil), 64<<20)
			handleDelta(b, p, req)
			pushed(b, p)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				update(b, store, func(tx *Tx) { benchVariant(tx, fmt.Sprint("e", n%resources), "env", "prod", n+1) })
				if got := pushed(b, p); len(got) != 1 {
					b.Fatalf("%d responses", len(got))
				}
			}
		})
	}
}

// RefreshDPDS for one of 1,000 clients whose answer changes, and for 999 whose
// answer does not.
func BenchmarkStore_RefreshDPDS1000Streams(b *testing.B) {
	const streams = 1_000
	store := NewStore()
	n := 0
	update(b, store, func(tx *Tx) {
		tx.SetDPDS("d", func(node *corepb.Node) (dynparam.ByType, error) {
			value := "same"
			if node.GetId() == "0" {
				value = fmt.Sprint(n)
			}
			c, err := dynparam.Exact(map[string]string{"k": value})
			if err != nil {
				return dynparam.ByType{}, err
			}
			return dynparam.NewByType(map[string]dynparam.Constraints{"envoy.config.cluster.v3.Cluster": c})
		})
	})
	var clients []*delta
	for i := range streams {
		p := newDelta(newStream(uint64(i), ProtocolDelta, store, nil, limits{names: 1 << 20, bytes: 1 << 30}, nil), defaultMaxResponseSize)
		handleDelta(b, p, &discoverypb.DeltaDiscoveryRequest{
			Node: &corepb.Node{Id: fmt.Sprint(i)}, TypeUrl: dynparam.MapTypeURL, ResourceNamesSubscribe: []string{"d"},
		})
		pushed(b, p)
		clients = append(clients, p)
	}
	b.ReportAllocs()
	for b.Loop() {
		n++
		store.RefreshDPDS("d", nil)
		sent := 0
		for _, p := range clients {
			sent += len(pushed(b, p))
		}
		if sent != 1 {
			b.Fatalf("%d responses, want 1", sent)
		}
	}
}
