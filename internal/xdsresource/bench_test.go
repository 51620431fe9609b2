package xdsresource

import (
	"fmt"
	"runtime"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/xdsclient"
)

// manyRoutes has n routes of a kind to 100 clusters, and a last one for all.
func manyRoutes(n int, match func(i int) *routepb.RouteMatch) *routepb.RouteConfiguration {
	routes := make([]*routepb.Route, 0, n+1)
	for i := range n {
		routes = append(routes, xdsmsg.Route(match(i), xdsmsg.ToCluster(fmt.Sprintf("cluster-%d", i%100))))
	}
	return routeConfig(append(routes, xdsmsg.PrefixRoute("/", "default"))...)
}

var matchKinds = []struct {
	name  string
	match func(i int) *routepb.RouteMatch
}{
	{"exact", func(i int) *routepb.RouteMatch { return xdsmsg.Path(methodOf(i)) }},
	{"prefix", func(i int) *routepb.RouteMatch { return xdsmsg.Prefix(fmt.Sprintf("/package.Service%d/", i)) }},
	{"regex", func(i int) *routepb.RouteMatch { return regexMatch(fmt.Sprintf(`/package\.Service%d/(Me|Ve).*`, i)) }},
	{"headers", func(i int) *routepb.RouteMatch {
		m := xdsmsg.Path(methodOf(i))
		m.Headers = []*routepb.HeaderMatcher{exact("version", "2")}
		return m
	}},
	{"tenants", func(i int) *routepb.RouteMatch {
		m := xdsmsg.Prefix("/")
		m.Headers = []*routepb.HeaderMatcher{exact("tenant", fmt.Sprint(i))}
		return m
	}},
	{"mix", func(i int) *routepb.RouteMatch {
		service := fmt.Sprintf("/package.Service%d", i)
		switch i % 5 {
		case 0:
			return xdsmsg.Path(methodOf(i))
		case 1:
			return xdsmsg.Prefix(service + "/")
		case 2:
			return regexMatch(service + "/(Me|Ve).*")
		case 3:
			return regexMatch(fmt.Sprintf(".*Service%d/Method", i))
		default:
			m := regexMatch(".*/Method")
			m.Headers = []*routepb.HeaderMatcher{exact("tenant", fmt.Sprint(i))}
			return m
		}
	}},
}

func methodOf(i int) string { return fmt.Sprintf("/package.Service%d/Method", i) }

func BenchmarkDecodeRoutes(b *testing.B) {
	for _, kind := range matchKinds {
		b.Run(kind.name+"/10000", func(b *testing.B) {
			resource := xdsmsg.Any(manyRoutes(10_000, kind.match))
			b.ReportAllocs()
			var value any
			var err error
			before := heapInUse()
			for b.Loop() {
				if value, err = RouteConfigurationType.Decode(resource, xdsclient.DecodeOptions{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(heapInUse()-before), "B-kept")
			runtime.KeepAlive(value)
		})
	}
}

// BenchmarkUpdateRoutes is an update that leads one route to another cluster.
func BenchmarkUpdateRoutes(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("exact/%d", n), func(b *testing.B) {
			pb := manyRoutes(n, matchKinds[0].match)
			last := mustDecode[RouteConfiguration](b, RouteConfigurationType, pb)
			pb.VirtualHosts[0].Routes[n/2] = xdsmsg.Route(xdsmsg.Path(methodOf(n/2)), xdsmsg.ToCluster("default"))
			resource := xdsmsg.Any(pb)
			options := xdsclient.DecodeOptions{Last: last}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := RouteConfigurationType.Decode(resource, options); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
