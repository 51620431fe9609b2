package xdsresource

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/metadata"
)

// remembers counts the paths, and the distinct shortlists, that a virtual host
// remembers.
func remembers(vh *VirtualHost) (paths, lists int) {
	m := vh.compiled.memo.Load()
	if m == nil {
		return 0, 0
	}
	distinct := map[*shortlist]bool{}
	for i := range m.slots {
		if r := m.slots[i].Load(); r != nil {
			paths++
			distinct[r.list] = true
		}
	}
	return paths, len(distinct)
}

func byTenant(prefix, tenant string) *routepb.Route {
	match := prefixMatch(prefix)
	match.Headers = []*routepb.HeaderMatcher{exact("tenant", tenant)}
	return routeTo(match, clusterAction("c"))
}

func tenantOf(tenant string) func() metadata.MD {
	return func() metadata.MD { return metadata.Pairs("tenant", tenant) }
}

func TestMethodsAreRememberedWithinBounds(t *testing.T) {
	t.Parallel()
	// Given routes for 3,000 methods; when each is called twice; then each RPC
	// gets its route, and no more than 1,024 methods are remembered.
	const methods = 3_000
	var routes []*routepb.Route
	for i := range methods {
		routes = append(routes, routeTo(regexMatch(methodOf(i)), clusterAction("c")))
	}
	vh := decodeRoutes(t, routes...)
	for range 2 {
		for i := range methods {
			if got := vh.Route(RPC{Method: methodOf(i)}); got != vh.Routes[i] {
				t.Fatalf("%s: got %v, want its own route", methodOf(i), got)
			}
		}
	}
	if paths, _ := remembers(vh); paths > 1024 || paths < 900 {
		t.Errorf("%d methods are remembered, want almost 1024", paths)
	}
}

func TestLongMethodsAreNotRemembered(t *testing.T) {
	t.Parallel()
	vh := decodeRoutes(t, toCluster("/", "a"))
	for n := range 10 {
		if vh.Route(RPC{Method: "/" + strings.Repeat("x", 1024+n)}) == nil {
			t.Error("no route for a long method")
		}
	}
	if paths, _ := remembers(vh); paths != 0 {
		t.Errorf("%d methods are remembered, want none of those", paths)
	}
}

func TestQueriesAreNotRemembered(t *testing.T) {
	t.Parallel()
	vh := decodeRoutes(t, toCluster("/", "a"))
	for n := range 10 {
		vh.Route(RPC{Method: fmt.Sprint("/a?", n)})
	}
	if paths, _ := remembers(vh); paths != 1 {
		t.Errorf("%d methods are remembered, want one", paths)
	}
}

func TestWhatIsRememberedPerMethodIsBounded(t *testing.T) {
	t.Parallel()
	// Given 2,000 routes that are told apart by a header in each of 40
	// services, more than there is room for; then RPCs of all of them still
	// get their route.
	var routes []*routepb.Route
	const services, tenants = 40, 2_000
	for i := range services {
		for n := range tenants {
			routes = append(routes, byTenant(fmt.Sprintf("/s%d/", i), fmt.Sprint(n)))
		}
	}
	vh := decodeRoutes(t, routes...)
	for range 2 {
		for i := range services {
			got := vh.Route(RPC{Method: fmt.Sprintf("/s%d/m", i), Metadata: tenantOf("1999")})
			if want := vh.Routes[i*tenants+1999]; got != want {
				t.Fatalf("service %d: wrong route", i)
			}
		}
	}
	if room := vh.compiled.memo.Load().room.Load(); room < 0 {
		t.Errorf("room = %d, want no overdraft", room)
	}
	if paths, lists := remembers(vh); paths != services || lists > memoRoutes/(tenants*keyedCost)+1 {
		t.Errorf("%d methods with %d shortlists are remembered", paths, lists)
	}
}

func TestMethodsShareLongShortlists(t *testing.T) {
	t.Parallel()
	var routes []*routepb.Route
	for n := range 100 {
		routes = append(routes, byTenant("/", fmt.Sprint(n)))
	}
	vh := decodeRoutes(t, append(routes, routeTo(pathMatch("/own"), clusterAction("c")))...)
	for i := range 50 {
		if got := vh.Route(RPC{Method: methodOf(i), Metadata: tenantOf("7")}); got != vh.Routes[7] {
			t.Fatalf("got %v, want the route for tenant 7", got)
		}
	}
	vh.Route(RPC{Method: "/own"})
	if paths, lists := remembers(vh); paths != 51 || lists != 2 {
		t.Errorf("%d methods with %d shortlists, want 51 with 2", paths, lists)
	}
}

func TestRoutesByHeaderValueKeepTheirOrder(t *testing.T) {
	t.Parallel()
	// Given more headers than there are indexes, routes with several headers,
	// and others between them; then the first match wins.
	match := func(h ...*routepb.HeaderMatcher) *routepb.Route {
		m := prefixMatch("/")
		m.Headers = h
		return routeTo(m, clusterAction("c"))
	}
	routes := []*routepb.Route{
		match(present("first", true)),
		match(exact("a", "1"), exact("b", "1")),
		match(exact("b", "1")),
		match(inverted(exact("c", "1"))),
		match(exact("a", "1")),
		match(exact("c", "1")),
		match(exact("d", "1")),
		match(exact("e", "1"), present("x", true)),
		match(exact("f", "1")),
		match(exact("a", "1,2")),
		match(present("a", true), exact("b", "2")),
		match(exact(":authority", "h")),
	}
	vh := decodeRoutes(t, routes...)
	for want, rpc := range map[int]RPC{
		0:  {Metadata: func() metadata.MD { return metadata.Pairs("first", "", "a", "1", "b", "1") }},
		1:  {Metadata: func() metadata.MD { return metadata.Pairs("a", "1", "b", "1") }},
		2:  {Metadata: func() metadata.MD { return metadata.Pairs("b", "1", "c", "2") }},
		3:  {Metadata: func() metadata.MD { return metadata.Pairs("a", "1", "c", "2") }},
		4:  {Metadata: func() metadata.MD { return metadata.Pairs("a", "1", "c", "1") }},
		5:  {Metadata: func() metadata.MD { return metadata.Pairs("c", "1", "f", "1") }},
		6:  {Metadata: func() metadata.MD { return metadata.Pairs("d", "1", "f", "1") }},
		7:  {Metadata: func() metadata.MD { return metadata.Pairs("e", "1", "f", "1", "x", "") }},
		8:  {Metadata: func() metadata.MD { return metadata.Pairs("e", "1", "f", "1") }},
		9:  {Metadata: func() metadata.MD { return metadata.Pairs("a", "1", "a", "2") }},
		10: {Metadata: func() metadata.MD { return metadata.Pairs("a", "3", "b", "2") }},
		11: {Authority: "h"},
		-1: {},
	} {
		rpc.Method = "/s/m"
		got := vh.Route(rpc)
		if want < 0 && got != nil || want >= 0 && got != vh.Routes[want] {
			t.Errorf("want route %d, got %+v", want, got)
		}
	}
}

func TestConcurrentRPCsRememberTheSame(t *testing.T) {
	t.Parallel()
	var routes []*routepb.Route
	for i := range 200 {
		routes = append(routes, routeTo(regexMatch(methodOf(i)), clusterAction("c")), byTenant("/", fmt.Sprint(i)))
	}
	vh := decodeRoutes(t, routes...)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				n := (i + g*13) % 200
				// Up to route 2n nothing else matches the tenant.
				got := vh.Route(RPC{Method: methodOf(n), Metadata: tenantOf(fmt.Sprint(n))})
				if got != vh.Routes[2*n] {
					t.Errorf("%s: got %+v, want route %d", methodOf(n), got, 2*n)
				}
			}
		})
	}
	wg.Wait()
	if paths, _ := remembers(vh); paths != 200 {
		t.Errorf("%d methods are remembered, want each of 200 once", paths)
	}
}
