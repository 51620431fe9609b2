//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
)

// The linear matcher: which route an RPC takes as gRFC A28 and Envoy's RouteMatch
// describe it, from the messages themselves and without any of the code under test.

// linearRPC is an RPC as the linear matcher sees it.
type linearRPC struct {
	method, authority string
	md                metadata.MD
}

func (rpc *linearRPC) matchable() matching.RPC {
	return matching.RPC{Method: rpc.method, Authority: rpc.authority, Context: metadata.NewOutgoingContext(context.Background(), rpc.md)}
}

// bothWays routes the RPC by the index and by the linear matcher.
func (rpc *linearRPC) bothWays(vh *VirtualHost, routes []*routepb.Route) (got, want *Route) {
	got = vh.Route(rpc.matchable())
	if i := rpc.firstOf(routes); i >= 0 {
		want = vh.Routes[i]
	}
	return got, want
}

// firstMet returns the first route of which no condition is unmet, and whose fraction is not 0.
func (rpc *linearRPC) firstMet(vh *VirtualHost) *Route {
	x := rpc.matchable()
	for _, route := range vh.Routes {
		if path, query, header := route.Match.Unmet(&x); path || query != nil || header != nil {
			continue
		}
		if fraction := route.Match.Conditions().FractionPerMillion; fraction == nil || *fraction > 0 {
			return route
		}
	}
	return nil
}

func (rpc *linearRPC) firstOf(routes []*routepb.Route) int {
	for i, route := range routes {
		if rpc.fits(route.GetMatch()) {
			return i
		}
	}
	return -1
}

func (rpc *linearRPC) fits(m *routepb.RouteMatch) bool {
	path, query, hasQuery := strings.Cut(rpc.method, "?")
	if !pathFits(m, path) {
		return false
	}
	parameters, _ := url.ParseQuery(query)
	for _, q := range m.GetQueryParameters() {
		values, present := parameters[q.GetName()]
		fits := hasQuery && present == q.GetPresentMatch()
		if s := q.GetStringMatch(); s != nil {
			fits = present && stringFits(s, values[0])
		}
		if !fits {
			return false
		}
	}
	for _, h := range m.GetHeaders() {
		if !rpc.headerFits(h) {
			return false
		}
	}
	f := m.GetRuntimeFraction().GetDefaultValue()
	return f == nil || f.GetNumerator() > 0
}

func pathFits(m *routepb.RouteMatch, path string) bool {
	fold := func(s string) string { return s }
	if m.GetCaseSensitive() != nil && !m.GetCaseSensitive().GetValue() {
		fold = strings.ToLower
	}
	switch s := m.GetPathSpecifier().(type) {
	case *routepb.RouteMatch_Prefix:
		return strings.HasPrefix(fold(path), fold(s.Prefix))
	case *routepb.RouteMatch_Path:
		return fold(path) == fold(s.Path)
	case *routepb.RouteMatch_PathSeparatedPrefix:
		return strings.HasPrefix(fold(path)+"/", fold(s.PathSeparatedPrefix)+"/")
	default:
		return regexFits(m.GetSafeRegex().GetRegex(), path)
	}
}

// anchored has the compiled patterns, of which there are few, as whole matches.
var anchored sync.Map

func regexFits(pattern, s string) bool {
	re, ok := anchored.Load(pattern)
	if !ok {
		re, _ = anchored.LoadOrStore(pattern, regexp.MustCompile("^(?:"+pattern+")$"))
	}
	return re.(*regexp.Regexp).MatchString(s)
}

func stringFits(m *matcherpb.StringMatcher, s string) bool {
	fold := func(s string) string { return s }
	if m.GetIgnoreCase() {
		fold = strings.ToLower
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherpb.StringMatcher_Exact:
		return fold(s) == fold(p.Exact)
	case *matcherpb.StringMatcher_Prefix:
		return strings.HasPrefix(fold(s), fold(p.Prefix))
	case *matcherpb.StringMatcher_Suffix:
		return strings.HasSuffix(fold(s), fold(p.Suffix))
	case *matcherpb.StringMatcher_Contains:
		return strings.Contains(fold(s), fold(p.Contains))
	default:
		return regexFits(m.GetSafeRegex().GetRegex(), s)
	}
}

// header returns the value of a header, several of them joined.
func (rpc *linearRPC) header(name string) (value string, present bool) {
	switch {
	case name == ":method":
		return "POST", true
	case name == ":path":
		return rpc.method, true
	case name == ":authority":
		return rpc.authority, true
	case name == "content-type":
		return "application/grpc", true
	case strings.HasSuffix(name, "-bin"):
		return "", false
	}
	values := rpc.md[name]
	return strings.Join(values, ","), len(values) > 0
}

func (rpc *linearRPC) headerFits(m *routepb.HeaderMatcher) bool {
	value, present := rpc.header(strings.ToLower(m.GetName()))
	if p, ok := m.GetHeaderMatchSpecifier().(*routepb.HeaderMatcher_PresentMatch); ok {
		return (present == p.PresentMatch) != m.GetInvertMatch()
	}
	if !present && !m.GetTreatMissingHeaderAsEmpty() {
		return false
	}
	fits := false
	switch p := m.GetHeaderMatchSpecifier().(type) {
	case *routepb.HeaderMatcher_ExactMatch:
		fits = value == p.ExactMatch
	case *routepb.HeaderMatcher_RangeMatch:
		n, err := strconv.Atoi(value)
		fits = err == nil && n >= int(p.RangeMatch.GetStart()) && n < int(p.RangeMatch.GetEnd())
	case *routepb.HeaderMatcher_StringMatch:
		fits = stringFits(p.StringMatch, value)
	}
	return fits != m.GetInvertMatch()
}

// The random tables and RPCs.

// randomPath returns a path over a small alphabet, so that paths often are
// equal, or prefixes of each other.
func randomPath(r *rand.Rand) string {
	var b strings.Builder
	b.WriteByte('/')
	for range r.IntN(7) {
		b.WriteByte("abAB/"[r.IntN(5)])
	}
	return b.String()
}

func oneOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func randomMatch(r *rand.Rand) *routepb.RouteMatch {
	var m *routepb.RouteMatch
	switch r.IntN(8) {
	case 0:
		m = regexMatch(randomPath(r) + oneOf(r, ".*b", "[ab]*", "(?i)a.*", "", "b?", "(A|B)/.*", "+"))
	case 1, 2:
		m = xdsmsg.Path(randomPath(r))
	case 3:
		m = separatedMatch(strings.TrimRight(randomPath(r), "/") + "/a")
	default:
		m = xdsmsg.Prefix(randomPath(r)[:1])
		if path := randomPath(r); r.IntN(10) > 0 {
			m = xdsmsg.Prefix(path)
		}
	}
	if r.IntN(4) == 0 {
		m = caseInsensitive(m)
	}
	for range r.IntN(6) - 3 {
		m.Headers = append(m.Headers, randomHeader(r))
	}
	if r.IntN(20) == 0 {
		is := &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: "1"}}
		m.QueryParameters = []*routepb.QueryParameterMatcher{oneOf(r, stringQuery("q", is), queryPresent("q", true), queryPresent("q", false))}
	}
	if r.IntN(6) == 0 {
		m.RuntimeFraction = runtimeFraction(oneOf[uint32](r, 0, 100), typepb.FractionalPercent_HUNDRED)
	}
	return m
}

// randomHeader asks for one value in most cases, as that is what there is an index
// for.
func randomHeader(r *rand.Rand) *routepb.HeaderMatcher {
	name := oneOf(r, "x", "y", "X", "z")
	h := exact(name, oneOf(r, "0", "1", "0,1", "a"))
	switch r.IntN(12) {
	case 0:
		h = inRange(name, int64(r.IntN(3)-1), int64(r.IntN(3)+1))
	case 1:
		h = present(name, r.IntN(2) == 0)
	case 2, 3:
		h = stringHeader(name, randomString(r))
	case 4:
		h = exact(":authority", oneOf(r, "a", "b"))
	case 5:
		h = stringHeader(oneOf(r, ":path", ":method", "content-type", "x-bin"), randomString(r))
	}
	h.InvertMatch = r.IntN(4) == 0
	h.TreatMissingHeaderAsEmpty = r.IntN(6) == 0
	return h
}

func randomString(r *rand.Rand) *matcherpb.StringMatcher {
	part := oneOf(r, "0", "1", "a", "A", "P")
	m := &matcherpb.StringMatcher{IgnoreCase: r.IntN(2) == 0}
	switch r.IntN(5) {
	case 0:
		m.MatchPattern = &matcherpb.StringMatcher_Exact{Exact: part}
	case 1:
		m.MatchPattern = &matcherpb.StringMatcher_Prefix{Prefix: part}
	case 2:
		m.MatchPattern = &matcherpb.StringMatcher_Suffix{Suffix: part}
	case 3:
		m.MatchPattern = &matcherpb.StringMatcher_Contains{Contains: part}
	default:
		m.MatchPattern = &matcherpb.StringMatcher_SafeRegex{SafeRegex: &matcherpb.RegexMatcher{Regex: part + oneOf(r, "+", ".*", "|0")}}
	}
	return m
}

func randomMetadata(r *rand.Rand) metadata.MD {
	md := metadata.MD{}
	for _, name := range []string{"x", "y", "z", "x-bin"} {
		for range r.IntN(3) {
			md.Append(name, oneOf(r, "0", "1", "a", "A", ""))
		}
	}
	return md
}

var (
	differentialDraws = flag.Int("differential-draws", 100_000, "number of RPCs of the differential test of the route table")
	differentialSeed  = flag.Uint64("differential-seed", 1, "what the differential test of the route table draws its tables and RPCs from")
)

func TestRouteTableAgreesWithALinearMatcher(t *testing.T) {
	t.Parallel()
	const rpcsPerTable = 500
	hits := 0
	for table := range *differentialDraws / rpcsPerTable {
		r := rand.New(rand.NewPCG(*differentialSeed, uint64(table)))
		var routes []*routepb.Route
		for i := range r.IntN([]int{60, 60, 300}[table%3]) {
			routes = append(routes, xdsmsg.Route(randomMatch(r), xdsmsg.ToCluster(fmt.Sprint(i))))
		}
		vh := decodeRoutes(t, routes...)
		for range rpcsPerTable {
			rpc := linearRPC{method: randomPath(r), authority: oneOf(r, "a", "b"), md: randomMetadata(r)}
			if r.IntN(8) == 0 {
				rpc.method += oneOf(r, "?", "?q=1", "?p=1&q=0", "?p")
			}
			got, want := rpc.bothWays(vh, routes)
			if want != nil {
				hits++
			}
			if first := rpc.firstMet(vh); first != got {
				t.Fatalf("seed %d, table %d of %d routes: %s at %s with %v: the first route without an unmet condition is %+v, the route taken %+v",
					*differentialSeed, table, len(routes), rpc.method, rpc.authority, rpc.md, first, got)
			}
			if got != want {
				t.Fatalf("seed %d, table %d of %d routes: %s at %s with %v: got %+v, want %+v",
					*differentialSeed, table, len(routes), rpc.method, rpc.authority, rpc.md, got, want)
			}
		}
	}
	if hits < *differentialDraws/10 || hits > *differentialDraws*99/100 {
		t.Errorf("%d of %d RPCs found a route: too few or too many to learn much", hits, *differentialDraws)
	}
}
