package xdsclient

import (
	"strconv"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// TP2, "Server-Specified Constraints": the client "will unsubscribe from all
// resources of that type using the old constraints and then resubscribe"; in a batch
// that is one request per type. A server that goes by names is not told that it is
// unsubscribed from.
func TestChangeOfConstraintsIsOneRequestPerType(t *testing.T) {
	t.Parallel()
	types := newTestTypes()
	for _, delta := range []bool{false, true} {
		features := []string{"dynamic_parameter_constraints"}
		if delta {
			features = append(features, "delta")
		}
		k := newCore(t, features...)
		const n = 1000
		watches := func(c dynparam.Constraints) (stops []func()) {
			for i := range n {
				name := string(rune('a'+i/26%26)) + string(rune('a'+i%26)) + string(rune('a'+i/676))
				stops = append(stops, k.c.WatchLocator(types.clusters, name, c, &counter{}),
					k.c.WatchLocator(types.endpoints, name, c, &counter{}))
			}
			return stops
		}
		old := watches(choose("env=prod"))
		k.answer()
		k.c.Batch(func() {
			watches(choose("env=test"))
			for _, stop := range old {
				stop()
			}
		})
		for _, typ := range []*ResourceType{types.clusters, types.endpoints} {
			b := k.request()
			if !delta {
				var m discoverypb.DiscoveryRequest
				if proto.Unmarshal(b, &m) != nil || m.GetTypeUrl() != typ.TypeURL || len(m.GetResourceLocators()) != n || len(m.GetResourceNames()) != n {
					t.Errorf("the request has type %s, %d locators and %d names, want %s, %d and %d",
						m.GetTypeUrl(), len(m.GetResourceLocators()), len(m.GetResourceNames()), typ.TypeURL, n, n)
				}
				continue
			}
			var m discoverypb.DeltaDiscoveryRequest
			if proto.Unmarshal(b, &m) != nil || m.GetTypeUrl() != typ.TypeURL {
				t.Fatalf("the request has type %s, want %s", m.GetTypeUrl(), typ.TypeURL)
			}
			got := []int{len(m.GetResourceLocatorsSubscribe()), len(m.GetResourceNamesSubscribe()), len(m.GetResourceLocatorsUnsubscribe()), len(m.GetResourceNamesUnsubscribe())}
			xdstest.Equal(t, "locators and names to subscribe to and to unsubscribe from",
				[]int{n, n, n, 0}, got)
		}
		if b := k.request(); b != nil {
			t.Errorf("another request of %d bytes", len(b))
		}
	}
}

// BenchmarkMove1000 changes the constraints of 1,000 watches at once, from the calls
// to the bytes of the one request and to what the watchers are told of the answer.
// ns/watch is the same for any number of them: the time is linear.
func BenchmarkMove1000(b *testing.B) {
	for _, delta := range []bool{false, true} {
		for _, n := range []int{100, 1000, 10_000} {
			name, features := "SotW", []string{"dynamic_parameter_constraints"}
			if delta {
				name, features = "delta", append(features, "delta")
			}
			b.Run(name+"/"+strconv.Itoa(n), func(b *testing.B) { benchmarkMove(b, newCore(b, features...), n, delta) })
		}
	}
}

func benchmarkMove(b *testing.B, k *core, n int, delta bool) {
	types := newTestTypes()
	sides := [2]dynparam.Constraints{choose("env=prod"), choose("env=test")}
	var responses [2][]byte
	for i, params := range []string{"env=prod", "env=test"} {
		r := &answer{TypeUrl: types.clusters.TypeURL, SystemVersionInfo: params, Nonce: params}
		for j := range n {
			variantOf("cluster-"+strconv.Itoa(j), params, params)(r)
		}
		if responses[i] = mustMarshal(b, r); !delta {
			responses[i] = mustMarshal(b, inSotW(b, r))
		}
	}
	heard, stops := &counter{}, make([]func(), n)
	requests := 0
	move := func(to int) {
		k.c.Batch(func() {
			for i := range stops {
				before := stops[i]
				stops[i] = k.c.WatchLocator(types.clusters, "cluster-"+strconv.Itoa(i), sides[to], heard)
				if before != nil {
					before()
				}
			}
		})
		for m := k.request(); m != nil; m = k.request() {
			requests++
		}
		k.push(responses[to])
		k.answer()
	}
	move(0)
	requests = 0
	b.ReportAllocs()
	moves := 0
	for b.Loop() {
		moves++
		move(moves % 2)
	}
	if heard.values != (moves+1)*n || requests != moves {
		b.Fatalf("%d moves of %d watches told of %d values with %d requests", moves, n, heard.values, requests)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(moves)/float64(n), "ns/watch")
}
