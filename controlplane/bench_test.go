package controlplane

import (
	"fmt"
	"testing"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// One assignment of 10,000 changes; 100 streams subscribe to all of them. The
// cost is that of notifying 100 streams of one name, and of their responses.
func BenchmarkStore_UpdateOneOf10000(b *testing.B) {
	const resources, streams = 10_000, 100
	store := NewStore()
	names := make([]string, resources)
	if _, err := store.Update(func(tx *Tx) {
		for i := range names {
			names[i] = fmt.Sprintf("cluster-%d", i)
			tx.Set(&endpointpb.ClusterLoadAssignment{ClusterName: names[i]})
		}
	}); err != nil {
		b.Fatal(err)
	}
	var clients []*sotw
	for range streams {
		p := newSotW(newStream(1, ProtocolSotW, store, nil, limits{names: 2 * resources, bytes: 1 << 30}, nil), false, false)
		mustHandle(b, p, request(typeurl.Endpoints, names...))
		p.collect()
		clients = append(clients, p)
	}
	change := func(i int) {
		if _, err := store.Update(func(tx *Tx) {
			tx.Set(&endpointpb.ClusterLoadAssignment{
				ClusterName: names[i%resources],
				Policy:      &endpointpb.ClusterLoadAssignment_Policy{WeightedPriorityHealth: i%2 == 0},
				Endpoints:   []*endpointpb.LocalityLbEndpoints{{Priority: uint32(i)}},
			})
		}); err != nil {
			b.Fatal(err)
		}
	}
	sent := 0
	count := func(resp *discoverypb.DiscoveryResponse) error {
		sent += len(resp.GetResources())
		return nil
	}

	b.Run("update", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			change(i)
		}
	})
	b.Run("update and responses", func(b *testing.B) {
		for _, p := range clients {
			p.collect()
		}
		sent = 0
		b.ReportAllocs()
		n := 0
		for ; b.Loop(); n++ {
			change(n + 1<<20)
			for _, p := range clients {
				if err := p.push(count); err != nil {
					b.Fatal(err)
				}
			}
		}
		if sent != n*streams {
			b.Fatalf("%d resources were sent in %d updates to %d streams", sent, n, streams)
		}
	})
}
