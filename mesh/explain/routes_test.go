package explain

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// serving returns what a client needs for these routes: each cluster has one endpoint.
func serving(routes ...*routepb.Route) *Source {
	messages := []proto.Message{xdsmsg.DefaultListener("backend", "r"), xdsmsg.RouteConfig("r", "*", routes...)}
	known := make(map[string]bool)
	for _, r := range routes {
		if name := r.GetRoute().GetCluster(); name != "" && !known[name] {
			known[name] = true
			messages = append(messages, xdsmsg.EDSCluster(name, ""), xdsmsg.SimpleEndpoints(name, "10.0.0.1:80"))
		}
	}
	return sourceOf(messages...)
}

func some(percent uint32, cluster string) *routepb.Route {
	r := xdsmsg.PrefixRoute("/", cluster)
	r.Match.RuntimeFraction = fraction(percent)
	return r
}

// An explanation agrees with the code that routes RPCs: it has the shares that the same routes
// have over many draws, and a condition that failed for each route that is never taken.
func TestSharesAreThoseOfTheRouter(t *testing.T) {
	t.Parallel()
	const draws = 4000
	for table := range uint64(60) {
		r := rand.New(rand.NewPCG(3, table))
		var routes []*routepb.Route
		for i := range 1 + r.IntN(8) {
			route := xdsmsg.PrefixRoute([]string{"/", "/pkg", "/other"}[r.IntN(3)], fmt.Sprint("c", i))
			if r.IntN(3) == 0 {
				route.Match.Headers = []*routepb.HeaderMatcher{header("k", fmt.Sprint(r.IntN(2)))}
			}
			if r.IntN(3) == 0 {
				route.Match.RuntimeFraction = fraction(uint32(r.IntN(101)))
			}
			routes = append(routes, route)
		}
		s := serving(routes...)
		request := Request{Headers: map[string][]string{"k": {fmt.Sprint(r.IntN(2))}}}
		e := mustExplain(t, s, request)
		value, err := xdsresource.RouteConfigurationType.Decode(s.Resources[1].Raw, xdsclient.DecodeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		vh := value.(*xdsresource.RouteConfiguration).VirtualHosts[0]
		counts := make(map[*xdsresource.Route]int)
		for range draws {
			counts[vh.Route(matching.RPC{Method: method, Random: r.Uint64, Metadata: func() metadata.MD { return metadata.MD(request.Headers) }})]++
		}
		for i, route := range vh.Routes {
			got := 0.0
			if at := slices.IndexFunc(e.Routes, func(r Route) bool { return r.Index == i }); at >= 0 {
				found := &e.Routes[at]
				got = found.Share
				if (found.Failed == "" && !found.Later) != (got > 0) {
					t.Errorf("table %d: route %d has a share of %v and fails for %q", table, i, got, found.Failed)
				}
			}
			// Five standard deviations of a share that is not certain.
			p := got / 100
			if want := float64(counts[route]) / draws; math.Abs(want-p) > 5*math.Sqrt(p*(1-p)/draws)+1e-9 {
				t.Errorf("table %d: route %d has a share of %v%%, of the draws %v%%:\n%s", table, i, got, want*100, e.Text())
			}
		}
	}
}

// Routes that almost match are listed wherever they are: with the first condition that fails, or behind a route that takes
// all RPCs. A long list is shortened by those whose path differs.
func TestRoutesThatAlmostMatch(t *testing.T) {
	t.Parallel()
	var routes []*routepb.Route
	for i := range 30 {
		routes = append(routes, xdsmsg.PathRoute(fmt.Sprintf("/other.Service/M%d", i), "c"))
	}
	almost := xdsmsg.PrefixRoute("/pkg", "c")
	almost.Match.Headers = []*routepb.HeaderMatcher{header("x-user", "8")}
	routes[20] = almost
	routes = append(routes, xdsmsg.PathRoute(method, "c"), xdsmsg.PathRoute("/other.Service/Last", "c"), almost, xdsmsg.PrefixRoute("/", "c"))
	e := mustExplain(t, serving(routes...), Request{Headers: map[string][]string{"x-user": {"7"}}})
	for _, want := range []string{
		"    20  prefix \"/pkg\" and header x-user = \"8\"  no: header x-user is \"7\"\n    30  path",
		"    32  prefix \"/pkg\" and header x-user = \"8\"  no: header x-user is \"7\"\n",
		"    33  prefix \"/\"                             matches too, but an earlier route takes all RPCs\n    …   19 more\n    1 later route with other paths\n",
	} {
		if !strings.Contains(e.Text(), want) {
			t.Errorf("the text lacks %q:\n%s", want, e.Text())
		}
	}
}
