package xdsresource

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

// decodeAfter decodes a RouteConfiguration whose last version was last, decoded from old.
func decodeAfter(t testing.TB, last *RouteConfiguration, old, pb *routepb.RouteConfiguration) (*RouteConfiguration, error) {
	t.Helper()
	var options xdsclient.DecodeOptions
	if last != nil {
		options.Last, options.LastBytes = last, xdsmsg.Any(old).GetValue()
	}
	value, err := RouteConfigurationType.Decode(xdsmsg.Any(pb), options)
	rc, _ := value.(*RouteConfiguration)
	return rc, err
}

// twoHosts has 20 routes to two clusters in one virtual host and a route in another.
func twoHosts() *routepb.RouteConfiguration {
	pb := routeConfig()
	pb.VirtualHosts = nil
	for i, n := range []int{20, 1} {
		vh := &routepb.VirtualHost{Name: fmt.Sprint("host", i), Domains: []string{fmt.Sprintf("%d.example.com", i)}}
		for j := range n {
			vh.Routes = append(vh.Routes, xdsmsg.Route(xdsmsg.Path(methodOf(j)), xdsmsg.ToCluster(fmt.Sprint("cluster", j%2))))
		}
		pb.VirtualHosts = append(pb.VirtualHosts, vh)
	}
	return pb
}

// Given a RouteConfiguration that the client has, when an update changes some of it,
// then what stays the same is not decoded again, and the outcome is that of decoding the
// whole.
func TestUnchangedRoutesAreNotDecodedAgain(t *testing.T) {
	t.Parallel()
	host := func(pb *routepb.RouteConfiguration) *routepb.VirtualHost { return pb.VirtualHosts[0] }
	for _, tc := range []struct {
		name string
		edit func(pb *routepb.RouteConfiguration)
		// routes are how many of those of the first virtual host are the ones before.
		routes int
		// clusters says that the list of clusters is the one before.
		clusters bool
	}{
		{"nothing", func(*routepb.RouteConfiguration) {}, 20, true},
		{"another cluster that is known", func(pb *routepb.RouteConfiguration) {
			host(pb).Routes[7] = xdsmsg.Route(xdsmsg.Path(methodOf(7)), xdsmsg.ToCluster("cluster0"))
		}, 19, true},
		{"another cluster that is new", func(pb *routepb.RouteConfiguration) {
			host(pb).Routes[7] = xdsmsg.Route(xdsmsg.Path(methodOf(7)), xdsmsg.ToCluster("new"))
		}, 19, false},
		{"the last route to a cluster", func(pb *routepb.RouteConfiguration) {
			for i := 1; i < 20; i += 2 {
				host(pb).Routes[i] = xdsmsg.Route(xdsmsg.Path(methodOf(i)), xdsmsg.ToCluster("cluster0"))
			}
		}, 10, false},
		{"another match", func(pb *routepb.RouteConfiguration) {
			host(pb).Routes[7].Match = xdsmsg.Prefix("/other")
		}, 19, true},
		{"the first and the last", func(pb *routepb.RouteConfiguration) {
			host(pb).Routes[0].Name, host(pb).Routes[19].Name = "a", "b"
		}, 18, true},
		{"inserted at the front", func(pb *routepb.RouteConfiguration) {
			host(pb).Routes = slices.Insert(host(pb).Routes, 0, xdsmsg.PrefixRoute("/x", "cluster0"), xdsmsg.PrefixRoute("/y", "cluster0"))
		}, 20, true},
		{"inserted in between", func(pb *routepb.RouteConfiguration) {
			host(pb).Routes = slices.Insert(host(pb).Routes, 5, xdsmsg.PrefixRoute("/x", "cluster0"))
		}, 20, true},
		{"appended", func(pb *routepb.RouteConfiguration) {
			host(pb).Routes = append(host(pb).Routes, xdsmsg.PrefixRoute("/", "cluster1"))
		}, 20, true},
		{"removed from the front", func(pb *routepb.RouteConfiguration) { host(pb).Routes = host(pb).Routes[3:] }, 17, true},
		{"removed in between", func(pb *routepb.RouteConfiguration) { host(pb).Routes = slices.Delete(host(pb).Routes, 4, 6) }, 18, true},
		{"removed from the end", func(pb *routepb.RouteConfiguration) { host(pb).Routes = host(pb).Routes[:18] }, 18, true},
		{"all removed", func(pb *routepb.RouteConfiguration) { host(pb).Routes = nil }, 0, false},
		{"another virtual host", func(pb *routepb.RouteConfiguration) {
			pb.VirtualHosts[1].Routes[0] = xdsmsg.PrefixRoute("/", "cluster1")
		}, 20, true},
		{"one more virtual host", func(pb *routepb.RouteConfiguration) {
			pb.VirtualHosts = slices.Insert(pb.VirtualHosts, 1, &routepb.VirtualHost{Name: "new", Domains: []string{"new"}})
		}, 20, true},
		{"one virtual host less", func(pb *routepb.RouteConfiguration) { pb.VirtualHosts = pb.VirtualHosts[:1] }, 20, true},

		{"a domain", func(pb *routepb.RouteConfiguration) { host(pb).Domains = append(host(pb).Domains, "x") }, 0, false},
		{"what a virtual host says for all routes", func(pb *routepb.RouteConfiguration) {
			host(pb).RetryPolicy = &routepb.RetryPolicy{RetryOn: "unavailable"}
		}, 0, false},
		{"what is said for all virtual hosts", func(pb *routepb.RouteConfiguration) { pb.RequestHeadersToRemove = []string{"x"} }, 0, false},
		{"a bound", func(pb *routepb.RouteConfiguration) { pb.MaxDirectResponseBodySizeBytes = wrapperspb.UInt32(1) }, 0, false},
		{"a route that gRPC leaves out", func(pb *routepb.RouteConfiguration) {
			host(pb).Routes[3].Action = &routepb.Route_Route{Route: &routepb.RouteAction{}}
		}, 0, false},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			last := mustDecode[RouteConfiguration](t, RouteConfigurationType, twoHosts())
			pb := twoHosts()
			tc.edit(pb)
			got, err := decodeAfter(t, last, twoHosts(), pb)
			xdstest.NoError(t, err)
			checkSameRouting(t, got, mustDecode[RouteConfiguration](t, RouteConfigurationType, pb))
			kept := 0
			for _, route := range got.VirtualHosts[0].Routes {
				if slices.Contains(last.VirtualHosts[0].Routes, route) {
					kept++
				}
			}
			xdstest.Equal(t, "routes are those before", tc.routes, kept)
			xdstest.Equal(t, "SameClusters",
				tc.clusters, SameClusters(got.VirtualHosts[0], last.VirtualHosts[0]))
		})
	}
}

// A RouteConfiguration of which something is ignored is decoded as a whole, as routes that are used again
// do not say what of them is ignored, unless at most places differ.
func TestIgnoredPartsAreFoundAgain(t *testing.T) {
	t.Parallel()
	withIgnored := func() *routepb.RouteConfiguration {
		pb := twoHosts()
		pb.VirtualHosts[0].Routes[3].RequestHeadersToAdd = []*corepb.HeaderValueOption{
			{Header: &corepb.HeaderValue{Key: "x", Value: "%REQ(y)%"}},
		}
		return pb
	}
	last := mustDecode[RouteConfiguration](t, RouteConfigurationType, withIgnored())
	for name, tc := range map[string]struct {
		edit    func(pb *routepb.RouteConfiguration)
		ignored int
		same    bool
	}{
		"the part is removed": {func(pb *routepb.RouteConfiguration) { pb.VirtualHosts[0].Routes[3].RequestHeadersToAdd = nil }, 0, false},
		"another route":       {func(pb *routepb.RouteConfiguration) { pb.VirtualHosts[0].Routes[7].Name = "new" }, 1, false},
		"places": {func(pb *routepb.RouteConfiguration) {
			pb.VirtualHosts[0].Routes[7].Metadata = provenance.Metadata(map[string]string{"matches": "a.yaml:1"})
		}, 1, true},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			pb := withIgnored()
			tc.edit(pb)
			got, err := decodeAfter(t, last, withIgnored(), pb)
			xdstest.NoError(t, err)
			xdstest.Equal(t, "parts ignored", tc.ignored, len(got.Ignored))
			xdstest.Equal(t, "the value is the one before", tc.same, got == last)
		})
	}
}

// Given a RouteConfiguration that the client has, when an update is faulty, then the
// faults are those of decoding the whole, and name the places in the whole.
func TestFaultsOfUpdates(t *testing.T) {
	t.Parallel()
	last := mustDecode[RouteConfiguration](t, RouteConfigurationType, twoHosts())
	for _, edit := range []func(pb *routepb.RouteConfiguration){
		func(pb *routepb.RouteConfiguration) { pb.VirtualHosts[0].Routes[3].Match = nil },
		func(pb *routepb.RouteConfiguration) { pb.VirtualHosts[0].Routes[3].Match = regexMatch("(") },
		func(pb *routepb.RouteConfiguration) {
			pb.VirtualHosts[0].Routes[3], pb.VirtualHosts[0].Routes[9] = xdsmsg.PrefixRoute("/", ""), xdsmsg.PrefixRoute("/", "")
		},
		func(pb *routepb.RouteConfiguration) { pb.VirtualHosts[1].Domains = pb.VirtualHosts[0].Domains },
	} {
		pb := twoHosts()
		edit(pb)
		got, err := decodeAfter(t, last, twoHosts(), pb)
		_, want := RouteConfigurationType.Decode(xdsmsg.Any(pb), xdsclient.DecodeOptions{})
		if got != nil || err == nil || want == nil || err.Error() != want.Error() {
			t.Errorf("Decode = %v, %v, want the error %v", got, err, want)
		}
	}
}

// Given a bound on all regular expressions of a resource, when updates bring one after
// the other, then they count together, and removed ones do not count.
func TestRegularExpressionsOfUpdatesCountTogether(t *testing.T) {
	t.Parallel()
	large := func(i int) *routepb.RouteMatch {
		return regexMatch(fmt.Sprintf("/%d(%s){1000}", i, strings.Repeat("a", 40)))
	}
	pb := routeConfig()
	host := pb.VirtualHosts[0]
	last := mustDecode[RouteConfiguration](t, RouteConfigurationType, pb)
	var err error
	var lastPB *routepb.RouteConfiguration
	n := 0
	for ; err == nil && n < 100; n++ {
		old := proto.CloneOf(pb)
		host.Routes = append(host.Routes, xdsmsg.Route(large(n), xdsmsg.ToCluster("a")))
		var rc *RouteConfiguration
		if rc, err = decodeAfter(t, last, old, pb); err == nil {
			last, lastPB = rc, proto.CloneOf(pb)
		}
	}
	_, want := RouteConfigurationType.Decode(xdsmsg.Any(pb), xdsclient.DecodeOptions{})
	if n < 10 || err == nil || want == nil || err.Error() != want.Error() {
		t.Fatalf("the error of %d large expressions is %v, want %v", n, err, want)
	}
	host.Routes = host.Routes[:1]
	for i := range 30 {
		host.Routes[0] = xdsmsg.Route(large(1000+i), xdsmsg.ToCluster("a"))
		if last, err = decodeAfter(t, last, lastPB, pb); err != nil {
			t.Fatalf("after %d expressions that are gone: %v", i, err)
		}
		lastPB = proto.CloneOf(pb)
	}
}

// Given random tables and updates, when each is decoded with the help of the last one,
// then it is what decoding it alone gives.
func TestReusedRoutesAgreeWithDecodedOnes(t *testing.T) {
	t.Parallel()
	const tables, updates = 40, 10
	reused := 0
	for table := range uint64(tables) {
		r := rand.New(rand.NewPCG(*differentialSeed, table))
		pb := routeConfig()
		pb.VirtualHosts[0].Routes = nil
		for range r.IntN(40) {
			pb.VirtualHosts[0].Routes = append(pb.VirtualHosts[0].Routes, randomRoute(r))
		}
		last := mustDecode[RouteConfiguration](t, RouteConfigurationType, pb)
		for range updates {
			old := pb
			pb = proto.CloneOf(pb)
			randomEdit(r, pb.VirtualHosts[0])
			got, err := decodeAfter(t, last, old, pb)
			xdstest.NoError(t, err)
			if len(got.VirtualHosts[0].Routes) > 0 && slices.Contains(last.VirtualHosts[0].Routes, got.VirtualHosts[0].Routes[0]) {
				reused++
			}
			checkSameRouting(t, got, mustDecode[RouteConfiguration](t, RouteConfigurationType, pb))
			checkSameRoutes(t, r, got.VirtualHosts[0], pb.VirtualHosts[0].Routes)
			if t.Failed() {
				t.Fatalf("seed %d, table %d", *differentialSeed, table)
			}
			last = got
		}
	}
	if reused < tables*updates/2 {
		t.Errorf("%d of %d updates were reused: too few to learn much", reused, tables*updates)
	}
}

func randomRoute(r *rand.Rand) *routepb.Route {
	return xdsmsg.Route(randomMatch(r), xdsmsg.ToCluster(fmt.Sprint("cluster", r.IntN(10))))
}

func randomEdit(r *rand.Rand, host *routepb.VirtualHost) {
	for range 1 + r.IntN(3) {
		at := r.IntN(len(host.Routes) + 1)
		switch end := min(at+1+r.IntN(3), len(host.Routes)); r.IntN(5) {
		case 0:
			host.Routes = slices.Insert(host.Routes, at, randomRoute(r), randomRoute(r))
		case 1:
			host.Routes = slices.Delete(host.Routes, at, end)
		default:
			for i := at; i < end; i++ {
				edited := randomRoute(r)
				if r.IntN(2) == 0 {
					edited.Match = host.Routes[i].GetMatch()
				}
				host.Routes[i] = edited
			}
		}
	}
}

// checkSameRouting compares what two RouteConfigurations hold.
func checkSameRouting(t *testing.T, got, want *RouteConfiguration) {
	t.Helper()
	sorted := func(names []string) []string { return slices.Sorted(slices.Values(names)) }
	xdstest.Equal(t, "the clusters", sorted(want.Clusters()), sorted(got.Clusters()))
	if len(got.VirtualHosts) != len(want.VirtualHosts) {
		t.Fatalf("%d virtual hosts, want %d", len(got.VirtualHosts), len(want.VirtualHosts))
	}
	for i, w := range want.VirtualHosts {
		g := got.VirtualHosts[i]
		xdstest.Equal(t, fmt.Sprintf("the clusters of virtual host %d", i), sorted(w.Clusters()), sorted(g.Clusters()))
		if g.Name != w.Name || !reflect.DeepEqual(g.Domains, w.Domains) || !reflect.DeepEqual(g.Overrides, w.Overrides) || !reflect.DeepEqual(g.Routes, w.Routes) {
			t.Errorf("virtual host %d is not what it decodes to", i)
		}
		for _, domain := range w.Domains {
			if got.VirtualHost(domain) != g {
				t.Errorf("VirtualHost(%q) is another one", domain)
			}
		}
	}
}

// checkSameRoutes compares where random RPCs go to with a linear matcher.
func checkSameRoutes(t *testing.T, r *rand.Rand, vh *VirtualHost, routes []*routepb.Route) {
	t.Helper()
	for range 20 {
		rpc := linearRPC{method: randomPath(r), authority: oneOf(r, "a", "b"), md: randomMetadata(r)}
		if got, want := rpc.bothWays(r.Uint64(), vh, routes); got != want {
			t.Errorf("%s at %s with %v: got %+v, want %+v", rpc.method, rpc.authority, rpc.md, got, want)
		}
	}
}

// FuzzReuse has two inputs decoded one after the other: with the help of the first, the
// second has the outcome that it has alone.
func FuzzReuse(f *testing.F) {
	plain, err := proto.Marshal(twoHosts())
	xdstest.NoError(f, err)
	edited := twoHosts()
	edited.VirtualHosts[0].Routes[3] = xdsmsg.PrefixRoute("/", "new")
	other, err := proto.Marshal(edited)
	xdstest.NoError(f, err)
	f.Add(plain, other)
	f.Add(plain, plain[:len(plain)-3])
	f.Add(plain, append(slices.Clone(plain), 0x10, 1))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		decode := func(raw []byte, last any, old []byte) (*RouteConfiguration, error) {
			value, err := RouteConfigurationType.Decode(&anypb.Any{TypeUrl: typeurl.RouteConfiguration, Value: raw},
				xdsclient.DecodeOptions{Last: last, LastBytes: old})
			rc, _ := value.(*RouteConfiguration)
			return rc, err
		}
		last, err := decode(first, nil, nil)
		if err != nil {
			return
		}
		want, wantErr := decode(second, nil, nil)
		got, gotErr := decode(second, last, first)
		if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
			t.Fatalf("Decode = %v, want %v", gotErr, wantErr)
		}
		if want != nil {
			checkSameRouting(t, got, want)
		}
	})
}
