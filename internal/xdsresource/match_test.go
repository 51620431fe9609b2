//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"context"
	"math"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
)

func caseInsensitive(m *routepb.RouteMatch) *routepb.RouteMatch {
	m.CaseSensitive = wrapperspb.Bool(false)
	return m
}

func separatedMatch(prefix string) *routepb.RouteMatch {
	return &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: prefix}}
}

func stringQuery(name string, m *matcherpb.StringMatcher) *routepb.QueryParameterMatcher {
	return &routepb.QueryParameterMatcher{Name: name, QueryParameterMatchSpecifier: &routepb.QueryParameterMatcher_StringMatch{StringMatch: m}}
}

func queryPresent(name string, yes bool) *routepb.QueryParameterMatcher {
	return &routepb.QueryParameterMatcher{Name: name, QueryParameterMatchSpecifier: &routepb.QueryParameterMatcher_PresentMatch{PresentMatch: yes}}
}

func stringHeader(name string, m *matcherpb.StringMatcher) *routepb.HeaderMatcher {
	return &routepb.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routepb.HeaderMatcher_StringMatch{StringMatch: m}}
}

func present(name string, yes bool) *routepb.HeaderMatcher {
	return &routepb.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routepb.HeaderMatcher_PresentMatch{PresentMatch: yes}}
}

func exact(name, value string) *routepb.HeaderMatcher {
	return &routepb.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routepb.HeaderMatcher_ExactMatch{ExactMatch: value}}
}

func inRange(name string, start, end int64) *routepb.HeaderMatcher {
	return &routepb.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routepb.HeaderMatcher_RangeMatch{RangeMatch: &typepb.Int64Range{Start: start, End: end}}}
}

func runtimeFraction(n uint32, of typepb.FractionalPercent_DenominatorType) *corepb.RuntimeFractionalPercent {
	return &corepb.RuntimeFractionalPercent{DefaultValue: &typepb.FractionalPercent{Numerator: n, Denominator: of}, RuntimeKey: "ignored"}
}

func TestRuntimeFractionDrawsByItself(t *testing.T) {
	t.Parallel()
	vh := decodeRoutes(t, matchedBy(t, `runtime_fraction{default_value{numerator:50}}`))
	const draws = 100_000
	n := 0
	for range draws {
		if vh.Route(matching.RPC{Method: "/"}) != nil {
			n++
		}
	}
	// 6 standard deviations of a binomial distribution: sqrt(n)/2 each.
	if bound := 6 * math.Sqrt(draws) / 2; math.Abs(float64(n)-draws/2) > bound {
		t.Errorf("%d of %d RPCs match, want half of them within %.0f", n, draws, bound)
	}
}

// countingContext counts how often it is asked for a value.
type countingContext struct {
	context.Context
	times int
}

func (c *countingContext) Value(key any) any {
	c.times++
	return c.Context.Value(key)
}

func TestRouteAsksForNoMoreThanItNeeds(t *testing.T) {
	t.Parallel()
	const both = `prefix:"/h/" headers{name:"a" exact_match:"1"} headers{name:"b" exact_match:"1"}`
	vh := decodeRoutes(t, matchedBy(t, both), matchedBy(t, both),
		matchedBy(t, `prefix:"/f/" headers{name:"a" exact_match:"1"} runtime_fraction{default_value{numerator:100}}`),
		matchedBy(t, `prefix:"/c/" headers{name:"content-type" exact_match:"x"} headers{name:"x-bin" present_match:true}`),
		xdsmsg.PrefixRoute("/", "a"))
	for _, tc := range []struct {
		method string
		md     metadata.MD
		copies int
	}{
		{method: "/other/m"},
		{method: "/c/m"},
		{method: "/h/m", md: metadata.Pairs("a", "1"), copies: 1},
		{method: "/f/m", copies: 1},
		{method: "/f/m", md: metadata.Pairs("a", "1"), copies: 1},
	} {
		asked := &countingContext{Context: metadata.NewOutgoingContext(t.Context(), tc.md)}
		vh.Route(matching.RPC{Method: tc.method, Context: asked})
		if asked.times != tc.copies {
			t.Errorf("%s with %v: metadata copied %d times, want %d", tc.method, tc.md, asked.times, tc.copies)
		}
	}
}
