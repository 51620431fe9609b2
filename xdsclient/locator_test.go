package xdsclient

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

func located(name string, constraints ...string) *discoverypb.ResourceLocator {
	l := &discoverypb.ResourceLocator{Name: name}
	if len(constraints) > 0 {
		l.DynamicParameterConstraints = choose(constraints...).ToProto()
	}
	return l
}

// firstRequests makes a client with the features watch two variants of one cluster
// and one set of endpoints, and returns its requests.
func firstRequests[M proto.Message](t *testing.T, newMessage func() M, features ...string) (requests []M) {
	t.Helper()
	k, types := newCore(t, features...), newTestTypes()
	for _, constraints := range []dynparam.Constraints{choose("env=prod"), choose("env=test")} {
		k.c.WatchLocator(types.clusters, "b", constraints, &counter{})
	}
	k.c.WatchLocator(types.clusters, "a", choose("env=prod"), &counter{})
	k.c.Watch(types.endpoints, "e", &counter{})
	for b := k.request(); b != nil; b = k.request() {
		m := newMessage()
		xdstest.NoError(t, proto.Unmarshal(b, m))
		requests = append(requests, m)
	}
	return requests
}

// TP2, "API Changes": locators are an alternative to names that counts if the first
// request for a type has it. Names are there as well, for a server that does not know
// of locators; each is there once.
func TestLocatorsAreInTheFirstRequestOfEachType(t *testing.T) {
	t.Parallel()
	types := newTestTypes()
	clusters, endpoints := types.clusters.TypeURL, types.endpoints.TypeURL
	names, located := []string{"a", "b"}, []*discoverypb.ResourceLocator{located("a", "env=prod"), located("b", "env=prod"), located("b", "env=test")}
	withoutConstraints := []*discoverypb.ResourceLocator{{Name: "e"}}
	xdstest.Parallel(t, "SotW", func(t *testing.T) {
		got := firstRequests(t, func() *discoverypb.DiscoveryRequest { return new(discoverypb.DiscoveryRequest) }, "dynamic_parameter_constraints")
		want := []*discoverypb.DiscoveryRequest{
			{TypeUrl: clusters, ResourceNames: names, ResourceLocators: located},
			{TypeUrl: endpoints, ResourceNames: []string{"e"}, ResourceLocators: withoutConstraints},
		}
		xdstest.Equal(t, "requests", want, got, protocmp.Transform())
	})
	xdstest.Parallel(t, "delta", func(t *testing.T) {
		got := firstRequests(t, func() *discoverypb.DeltaDiscoveryRequest { return new(discoverypb.DeltaDiscoveryRequest) }, "delta", "dynamic_parameter_constraints")
		want := []*discoverypb.DeltaDiscoveryRequest{
			{TypeUrl: clusters, ResourceNamesSubscribe: names, ResourceLocatorsSubscribe: located},
			{TypeUrl: endpoints, ResourceNamesSubscribe: []string{"e"}, ResourceLocatorsSubscribe: withoutConstraints},
		}
		xdstest.Equal(t, "requests", want, got, protocmp.Transform())
	})
}

// A server without the feature sees plain xDS, and the constraints choose nothing:
// all watches of a name are of one resource.
func TestOtherServersSeePlainXDS(t *testing.T) {
	t.Parallel()
	types := newTestTypes()
	clusters, endpoints := types.clusters.TypeURL, types.endpoints.TypeURL
	sotw := firstRequests(t, func() *discoverypb.DiscoveryRequest { return new(discoverypb.DiscoveryRequest) })
	if diff := cmp.Diff([]*discoverypb.DiscoveryRequest{
		{TypeUrl: clusters, ResourceNames: []string{"a", "b"}}, {TypeUrl: endpoints, ResourceNames: []string{"e"}},
	}, sotw, protocmp.Transform()); diff != "" {
		t.Errorf("SotW requests (-want +got):\n%s", diff)
	}
	delta := firstRequests(t, func() *discoverypb.DeltaDiscoveryRequest { return new(discoverypb.DeltaDiscoveryRequest) }, "delta")
	if diff := cmp.Diff([]*discoverypb.DeltaDiscoveryRequest{
		{TypeUrl: clusters, ResourceNamesSubscribe: []string{"a", "b"}}, {TypeUrl: endpoints, ResourceNamesSubscribe: []string{"e"}},
	}, delta, protocmp.Transform()); diff != "" {
		t.Errorf("delta requests (-want +got):\n%s", diff)
	}
	k := newCore(t)
	heard := [2]*counter{{}, {}}
	k.c.WatchLocator(types.clusters, "cluster-0", choose("env=prod"), heard[0])
	k.c.WatchLocator(types.clusters, "cluster-0", choose("env=test"), heard[1])
	k.answer()
	k.push(sotwPush(t, types.clusters, 1, -1, ""))
	if heard[0].values != 1 || heard[1].values != 1 || types.decoded.Load() != 1 {
		t.Errorf("the watchers heard %+v and %+v, and %d resources were decoded, want one of each", heard[0], heard[1], types.decoded.Load())
	}
}

// A server without the feature may say anything where locators are.
func TestFieldsOfLocatorsMeanNothingFromOtherServers(t *testing.T) {
	t.Parallel()
	types := newTestTypes()
	k := newDeltaCore(t)
	heard := &counter{}
	k.c.Watch(types.clusters, "a", heard)
	k.answer()
	m := &answer{TypeUrl: types.clusters.TypeURL, Nonce: "n1"}
	variantOf("a", "env=prod", "x")(m)
	k.push(mustMarshal(t, m))
	gone("a")(m)
	m.Resources = nil
	if v := k.push(mustMarshal(t, m)); v != ads.VerdictAccepted || heard.values != 1 || heard.errors != 0 {
		t.Errorf("verdict %v; the watcher heard %+v, want one value", v, heard)
	}
}

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
