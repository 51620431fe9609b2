package matching

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/metadata"
)

// testTable is a Table of routes that the tests make by hand.
type testTable struct{ *Table }

type testRoutes []Route

func (r testRoutes) Len() int { return len(r) }

func (r testRoutes) Matching(i int32) *Route { return &r[i] }

func newTable(routes ...Route) testTable {
	t := new(Table)
	t.Compile(testRoutes(routes))
	return testTable{t}
}

func (t testTable) find(rpc RPC) int { return int(t.Find(&rpc)) }

func methodOf(i int) string { return fmt.Sprintf("/package.Service%d/Method", i) }

func regex(pattern string) Route {
	re, _, err := CompileRegex(pattern, true)
	if err != nil {
		panic(err)
	}
	return Route{PathKind: PathRegex, Further: &Conditions{Regex: re}}
}

func exact(name, value string) Header {
	return Header{Name: name, String: String{Kind: StringExact, Value: value}}
}

func present(name string, present bool) Header {
	return Header{Name: name, Kind: HeaderPresent, Present: present}
}

func inverted(h Header) Header {
	h.Invert = true
	return h
}

func byTenant(prefix, tenant string) Route {
	return Route{Path: prefix, Further: &Conditions{Headers: []Header{exact("tenant", tenant)}}}
}

func tenantOf(tenant string) func() metadata.MD {
	return func() metadata.MD { return metadata.Pairs("tenant", tenant) }
}

// remembers counts the paths, and the distinct shortlists, that a Table remembers.
func remembers(t testTable) (paths, lists int) {
	m := t.memo.Load()
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

func TestMethodsAreRememberedWithinBounds(t *testing.T) {
	t.Parallel()
	// Given routes for 1,500 methods, ten each; when each is called twice; then each RPC
	// gets its route, and no more than 1,024 methods are remembered.
	const methods, each = 1_500, 10
	var routes []Route
	for i := range methods / each {
		routes = append(routes, regex(fmt.Sprintf("/package[.]Service[0-9]/%d/Method", i)))
	}
	table := newTable(routes...)
	for range 2 {
		for i := range methods {
			method := fmt.Sprintf("/package.Service%d/%d/Method", i%each, i/each)
			if got := table.find(RPC{Method: method}); got != i/each {
				t.Fatalf("%s: got %v, want its own route", method, got)
			}
		}
	}
	if paths, _ := remembers(table); paths > 1024 || paths < 900 {
		t.Errorf("%d methods are remembered, want almost 1024", paths)
	}
}

// Where only headers distinguish the routes of a large table, each of them is indexed, and once: however many RPCs
// begin together, one of them does it.
func TestALargeTableIsIndexedOnce(t *testing.T) {
	t.Parallel()
	const tenants = 100_000
	var routes []Route
	for i := range tenants {
		routes = append(routes, byTenant("/", fmt.Sprint(i)))
	}
	table := newTable(routes...)
	last := RPC{Method: "/s/m", Metadata: tenantOf(fmt.Sprint(tenants - 1))}
	table.find(last)
	m := table.memo.Load()
	if paths, lists := remembers(table); paths != 1 || lists != 1 || len(m.shared) != 1 || m.room < 0 {
		t.Errorf("after the first RPC %d methods and %d lists are remembered, %d of them with an index; room for %d", paths, lists, len(m.shared), m.room)
	}
	other := last
	other.Method = "/s/other"
	m.making.Lock() // as an RPC of another method does
	if got := table.find(other); got != tenants-1 {
		t.Errorf("got route %d", got)
	}
	m.making.Unlock()
	if paths, _ := remembers(table); paths != 1 {
		t.Errorf("%d methods are remembered, want only the first", paths)
	}
	table.find(other)
	if paths, lists := remembers(table); paths != 2 || lists != 1 {
		t.Errorf("then %d methods and %d lists are remembered", paths, lists)
	}
}

func TestLongMethodsAreNotRemembered(t *testing.T) {
	t.Parallel()
	table := newTable(Route{Path: "/"})
	for n := range 10 {
		if table.find(RPC{Method: "/" + strings.Repeat("x", 1024+n)}) == None {
			t.Error("no route for a long method")
		}
	}
	if paths, _ := remembers(table); paths != 0 {
		t.Errorf("%d methods are remembered, want none of those", paths)
	}
}

func TestQueriesAreNotRemembered(t *testing.T) {
	t.Parallel()
	table := newTable(Route{Path: "/"})
	for n := range 10 {
		table.find(RPC{Method: fmt.Sprint("/a?", n)})
	}
	if paths, _ := remembers(table); paths != 1 {
		t.Errorf("%d methods are remembered, want one", paths)
	}
}

func TestWhatIsRememberedPerMethodIsBounded(t *testing.T) {
	t.Parallel()
	// Given 2,000 routes that differ by a header in each of 40 services, and as many for all services, more than there
	// is room for; then RPCs of all of them still get their route.
	var routes []Route
	const services, tenants = 40, 2_000
	for n := range tenants {
		routes = append(routes, byTenant("/s", fmt.Sprint("none", n)))
	}
	for i := range services {
		for n := range tenants {
			routes = append(routes, byTenant(fmt.Sprintf("/s%d/", i), fmt.Sprint(n)))
		}
	}
	table := newTable(routes...)
	for range 2 {
		for i := range services {
			got := table.find(RPC{Method: fmt.Sprintf("/s%d/m", i), Metadata: tenantOf("1999")})
			if want := (1+i)*tenants + 1999; got != want {
				t.Fatalf("service %d: wrong route", i)
			}
		}
	}
	if room := table.memo.Load().room; room < 0 {
		t.Errorf("room = %d, want no overdraft", room)
	}
	if paths, lists := remembers(table); paths != services || lists > len(routes)/(2*tenants)+1 {
		t.Errorf("%d methods with %d shortlists are remembered", paths, lists)
	}
}

// A path without a shortlist gets one when others are not called any more.
func TestRoomThatIsNotUsedIsGivenToOthers(t *testing.T) {
	t.Parallel()
	var routes []Route
	const services, tenants = 40, 2_000
	for n := range tenants {
		routes = append(routes, byTenant("/s", fmt.Sprint("none", n)))
	}
	for i := range services {
		for n := range tenants {
			routes = append(routes, byTenant(fmt.Sprintf("/s%d/", i), fmt.Sprint(n)))
		}
	}
	table := newTable(routes...)
	for i := range services {
		table.find(RPC{Method: fmt.Sprintf("/s%d/m", i)})
	}
	table.find(RPC{Method: "/s0/m"}) // the second RPC
	const last = services - 1
	remembered := func() bool {
		l := table.recall(fmt.Sprintf("/s%d/m", last))
		return l != nil
	}
	if remembered() {
		t.Fatalf("there is room for %d services, which this test does not expect", services)
	}
	for range 2 * memoRetry {
		table.find(RPC{Method: fmt.Sprintf("/s%d/m", last)})
	}
	if !remembered() {
		t.Error("a method that is called has no room beside others that are not")
	}
	m, used := table.memo.Load(), false
	for i := range m.slots {
		if r := m.slots[i].Load(); r != nil && r.path == "/s0/m" {
			used = true
		}
	}
	if !used {
		t.Error("a method that has had two RPCs lost its place")
	}
	for _, l := range m.shared {
		if l.paths == 0 {
			t.Error("a shortlist stays that no method has")
		}
	}
	if m.room < 0 {
		t.Errorf("room = %d, want no overdraft", m.room)
	}
}

// counted counts how often the conditions of its routes are looked at.
type counted struct {
	testRoutes
	looks *atomic.Int64
}

func (c counted) Matching(i int32) *Route {
	c.looks.Add(1)
	return c.testRoutes.Matching(i)
}

// Methods that are called once, such as those of a scan, do not keep the places of others.
func TestJunkDoesNotKeepMethodsFromBeingRemembered(t *testing.T) {
	t.Parallel()
	const others = 5
	var routes []Route
	for range others {
		routes = append(routes, regex(".*(Me|Ve)thod"))
	}
	routes = append(routes, Route{Path: "/"})
	var looks atomic.Int64
	table := new(Table)
	table.Compile(counted{routes, &looks})
	cost := func(method string) int64 {
		before := looks.Load()
		if table.Find(&RPC{Method: method}) != others {
			t.Fatalf("%s: no route", method)
		}
		return looks.Load() - before
	}
	junk := 0
	scan := func(n int) {
		for range n {
			junk++
			cost(fmt.Sprint("/junk", junk))
		}
	}
	scan(2000)
	if first, second := cost("/late"), cost("/late"); first < others || second > 1 {
		t.Errorf("a method that was called first after 2,000 others looks at %d routes and then at %d, want at none or one then", first, second)
	}
	t.Run("and it stays remembered while a scan goes on", func(t *testing.T) {
		forgotten := 0
		for range 300 {
			scan(50)
			if cost("/late") > 1 {
				forgotten++
			}
		}
		if forgotten > 0 {
			t.Errorf("it was forgotten %d times within 15,000 other methods", forgotten)
		}
	})
}

func TestMethodsShareLongShortlists(t *testing.T) {
	t.Parallel()
	var routes []Route
	for n := range 100 {
		routes = append(routes, byTenant("/", fmt.Sprint(n)))
	}
	table := newTable(append(routes, Route{PathKind: PathExact, Path: "/own"})...)
	for i := range 50 {
		if got := table.find(RPC{Method: methodOf(i), Metadata: tenantOf("7")}); got != 7 {
			t.Fatalf("got %v, want the route for tenant 7", got)
		}
	}
	table.find(RPC{Method: "/own"})
	if paths, lists := remembers(table); paths != 51 || lists != 2 {
		t.Errorf("%d methods with %d shortlists, want 51 with 2", paths, lists)
	}
}

func TestRoutesByHeaderValueKeepTheirOrder(t *testing.T) {
	t.Parallel()
	// Given more headers than there are indexes, routes with several headers,
	// and others between them; then the first match wins.
	match := func(h ...Header) Route {
		return Route{Path: "/", Further: &Conditions{Headers: h}}
	}
	routes := []Route{
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
		{Path: "/", Further: &Conditions{Headers: []Header{exact("a", "9")}, FractionPerMillion: new(uint32)}},
		{Path: "/", Further: &Conditions{Headers: []Header{exact("a", "9")}, Query: []Query{{Name: "q", Present: true}}}},
		match(exact("a", "9")),
	}
	table := newTable(routes...)
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
		13: {Method: "/s/m?q", Metadata: func() metadata.MD { return metadata.Pairs("a", "9") }},
		14: {Metadata: func() metadata.MD { return metadata.Pairs("a", "9") }},
		-1: {},
	} {
		if rpc.Method == "" {
			rpc.Method = "/s/m"
		}
		if got := table.find(rpc); got != want {
			t.Errorf("want route %d, got %d", want, got)
		}
	}
}

func TestConcurrentRPCsRememberTheSame(t *testing.T) {
	t.Parallel()
	const methods = 40 // so few that hardly ever all slots of one are taken
	var routes []Route
	for i := range methods {
		routes = append(routes, regex(methodOf(i)), byTenant("/", fmt.Sprint(i)))
	}
	table := newTable(routes...)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 5 * methods {
				n := (i + g*13) % methods
				// Up to route 2n nothing else matches the tenant.
				got := table.find(RPC{Method: methodOf(n), Metadata: tenantOf(fmt.Sprint(n))})
				if got != 2*n {
					t.Errorf("%s: got %d, want route %d", methodOf(n), got, 2*n)
				}
			}
		})
	}
	wg.Wait()
	if paths, _ := remembers(table); paths != methods {
		t.Errorf("%d methods are remembered, want each of %d once", paths, methods)
	}
}

// BenchmarkManyMethods is what sharing shortlists is for: 10,000 routes by tenant, and RPCs of
// 100 methods, whose shortlists would not have room for each of them.
func BenchmarkManyMethods(b *testing.B) {
	var routes []Route
	for n := range 10_000 {
		routes = append(routes, byTenant("/", fmt.Sprint(n)))
	}
	table := newTable(routes...)
	i := 0
	for b.Loop() {
		i++
		if table.find(RPC{Method: methodOf(i % 100), Metadata: tenantOf("5000")}) != 5000 {
			b.Fatal("wrong route")
		}
	}
}
