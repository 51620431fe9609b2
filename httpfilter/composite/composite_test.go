package composite

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	matcherpb "github.com/cncf/xds/go/xds/type/matcher/v3"
	matchingpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// matcher returns the configuration with a matcher in text.
func matcher(t testing.TB, text string) *matchingpb.ExtensionWithMatcher {
	return top("xds_matcher{%s}", expand(t, text))
}

func interceptorOf(t testing.TB, in httpfilter.ClientInstance, pb *matchingpb.ExtensionWithMatcher) httpfilter.Interceptor {
	t.Helper()
	c, err := parse(pb)
	xdstest.NoError(t, err)
	i, err := in.ClientInterceptor(c, nil)
	xdstest.NoError(t, err)
	return i
}

// What is accepted at a limit and refused above it.
func TestLimits(t *testing.T) {
	t.Parallel()
	always := func(then string) string {
		return "matcher_list{ matchers{ predicate{$is(a=1)} on_match{" + then + "} } }"
	}
	perRoute := func(pb *matchingpb.ExtensionWithMatcher) *matchingpb.ExtensionWithMatcherPerRoute {
		return &matchingpb.ExtensionWithMatcherPerRoute{XdsMatcher: pb.XdsMatcher}
	}
	for name, test := range map[string]struct {
		limit int
		of    func(n int) *matchingpb.ExtensionWithMatcher
		want  string
	}{
		// A103, "xDS Resource Validation": "a maximum recursion depth of 8 when parsing HTTP filter configs"
		"filters in one another": {8, func(n int) *matchingpb.ExtensionWithMatcher {
			tree := always("$skip()")
			for range n - 1 {
				tree = always("$execute(typed_config{$composite(" + tree + ")})")
			}
			return matcher(t, tree)
		}, "filters are nested more than 8 deep"},
		// A106, "Unified Matcher: Matcher": "reject any matcher definition with a tree depth greater than 16"
		"matchers in one another": {16, func(n int) *matchingpb.ExtensionWithMatcher {
			tree := always("$skip()")
			for range n - 1 {
				tree = always("matcher{" + tree + "}")
			}
			return matcher(t, tree)
		}, "matchers are nested more than 16 deep"},
		"filters": {bounds.NestedFilters, func(n int) *matchingpb.ExtensionWithMatcher {
			chain := strings.Repeat("typed_config{$filter(a)} ", 50)
			tree := fmt.Sprintf("on_no_match{$execute(filter_chain{%s})} matcher_list{", strings.Repeat("typed_config{$filter(a)} ", n%50))
			return matcher(t, tree+strings.Repeat("matchers{ predicate{$is(a=1)} on_match{$execute(filter_chain{"+chain+"})} } ", n/50)+"}")
		}, "there are more than the 1000 filters inside one"},
		"filters of a chain": {bounds.HTTPFilters, func(n int) *matchingpb.ExtensionWithMatcher {
			return matcher(t, always("$run("+strings.Repeat("a ", n)+")"))
		}, "filter_chain.typed_config: has 101 entries, more than the 100"},
		"predicates": {bounds.Predicates, func(n int) *matchingpb.ExtensionWithMatcher {
			pb := matcher(t, always("$skip()"))
			m := pb.XdsMatcher.GetMatcherList()
			m.Matchers = slices.Repeat(m.Matchers, n)
			return pb
		}, "more than the 1000 predicates"},
		"predicates in one another": {bounds.Predicates, func(n int) *matchingpb.ExtensionWithMatcher {
			pb := matcher(t, always("$skip()"))
			p := &pb.XdsMatcher.GetMatcherList().Matchers[0].Predicate
			for range n - 1 {
				*p = &matcherpb.Matcher_MatcherList_Predicate{MatchType: &matcherpb.Matcher_MatcherList_Predicate_NotMatcher{NotMatcher: *p}}
			}
			return pb
		}, "predicate.not_matcher.not_matcher"},
		"regular expressions": {36, func(n int) *matchingpb.ExtensionWithMatcher {
			return matcher(t, "matcher_list{"+strings.Repeat(`matchers{ predicate{single_predicate{$header(a) value_match{safe_regex{regex:"[acegikmoqsuwy]{1000}"}}}} on_match{$skip()} } `, n)+"}")
		}, "the regular expressions of this resource are too large together"},
		// A106, "Unified Matcher: HttpRequestHeaderMatchInput": "[1, 16384)"
		"names of headers": {16383, func(n int) *matchingpb.ExtensionWithMatcher {
			return matcher(t, "matcher_list{ matchers{ predicate{$is("+strings.Repeat("a", n)+"=1)} on_match{$skip()} } }")
		}, "is too long"},
	} {
		_, err := parse(test.of(test.limit))
		xdstest.NoError(t, err)
		_, err = parseOverride(perRoute(test.of(test.limit)))
		xdstest.NoError(t, err)
		if _, err = parse(test.of(test.limit + 1)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err = parseOverride(perRoute(test.of(test.limit + 1))); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s, in an override: %v", name, err)
		}
	}
}

// A103, "xDS Resource Validation": "if that number is less than the specified threshold, the specified filter(s) will be executed"
func TestSamplePercent(t *testing.T) {
	t.Parallel()
	i := interceptorOf(t, newFilter(nil).NewClientInstance(httpfilter.ClientInstanceInfo{}), matcher(t,
		"matcher_list{ matchers{ predicate{$is(:method=POST)} on_match{$execute(typed_config{$filter(f)} sample_percent{default_value{numerator:30}})} } }"))
	met := 0
	for range 10_000 {
		if send(t.Context(), new(httpfilter.RPC), i) == "meets f" {
			met++
		}
	}
	if met < 2_800 || met > 3_200 {
		t.Errorf("%d of 10,000 RPCs meet the filter, want about 3,000", met)
	}
}

// closing is a type of filters that count their instances.
type closing struct{ opened, closed *atomic.Int64 }

var instances = closing{new(atomic.Int64), new(atomic.Int64)}

func init() { httpfilter.Register(instances) }

func (closing) TypeURLs() []string { return []string{"type.googleapis.com/test.Closing"} }
func (closing) IsTerminal() bool   { return false }

func (closing) ParseConfig(*anypb.Any) (httpfilter.Config, error) { return nil, nil }

func (c closing) NewClientInstance(httpfilter.ClientInstanceInfo) httpfilter.ClientInstance {
	c.opened.Add(1)
	return closingInstance{marker: mark("closing"), closing: c}
}

type closingInstance struct {
	closing
	marker httpfilter.Interceptor
}

func (c closingInstance) ClientInterceptor(httpfilter.Config, httpfilter.Config) (httpfilter.Interceptor, error) {
	return c.marker, nil
}

func (c closingInstance) Close() { c.closed.Add(1) }

// What httpfilter promises of ClientInstance holds for filters inside: an instance stays across updates while name and type do, and is
// closed when no interceptor has it any more.
func TestInstances(t *testing.T) {
	t.Parallel()
	in := newFilter(nil).NewClientInstance(httpfilter.ClientInstanceInfo{})
	with := func(names ...string) httpfilter.Interceptor {
		tree := "matcher_list{"
		for _, name := range names {
			tree += fmt.Sprintf("matchers{ predicate{$is(k=%s)} on_match{$execute(typed_config{$closing(%[1]s)})} } ", name)
		}
		return interceptorOf(t, in, matcher(t, tree+"}"))
	}
	opened, closed := instances.opened.Load(), instances.closed.Load() // of the test's last run
	check := func(when string, wantOpened, wantClosed int64) {
		t.Helper()
		wantOpened, wantClosed = opened+wantOpened, closed+wantClosed
		for ctx := testutils.Context(t); instances.closed.Load() != wantClosed; runtime.GC() {
			if ctx.Err() != nil {
				t.Fatalf("%s: %d instances are closed, want %d", when, instances.closed.Load(), wantClosed)
			}
		}
		xdstest.Equal(t, when, wantOpened, instances.opened.Load())
	}
	first := with("a", "b", "a")
	second := with("a", "c")
	runtime.KeepAlive(first)
	check("b is in no interceptor any more", 3, 1)
	xdstest.Equal(t, "c", "meets closing", send(metadata.AppendToOutgoingContext(t.Context(), "k", "c"), new(httpfilter.RPC), second))
	third := with("b")
	runtime.KeepAlive(second)
	check("b is back, and a and c are not", 4, 3)
	runtime.KeepAlive(third)
	check("none is", 4, 4)
}

// silent is the end of a chain that costs nothing.
type silent struct{}

func (silent) Send(context.Context, *httpfilter.RPC) (grpc.ClientStream, error) { return nil, nil }

// What the filter costs an RPC in allocations: a tree nothing, unless it depends on metadata, which are copied; and a chain one.
func TestAllocations(t *testing.T) {
	for name, test := range costs {
		i, ctx, rpc := test.rpc(t)
		got := testing.AllocsPerRun(100, func() { _, _ = i.NewStream(ctx, rpc, httpfilter.NewNext(silent{})) })
		xdstest.Equal(t, name, test.allocations, got)
	}
}

type cost struct {
	tree        string
	allocations float64
}

var costs = map[string]cost{
	"skip":             {`matcher_tree{ $header(:path) prefix_match_map{ map{ key:"/s" value{$skip()} } } }`, 0},
	"skip by metadata": {`matcher_tree{ $header(k) exact_match_map{ map{ key:"1" value{$skip()} } } }`, 3},
	"chain of two":     {`matcher_tree{ $header(:path) prefix_match_map{ map{ key:"/s" value{$run(pass pass)} } } }`, 1},
}

func (c cost) rpc(t testing.TB) (httpfilter.Interceptor, context.Context, *httpfilter.RPC) {
	i := interceptorOf(t, newFilter(nil).NewClientInstance(httpfilter.ClientInstanceInfo{}), matcher(t, c.tree))
	return i, metadata.AppendToOutgoingContext(t.Context(), "k", "1"), &httpfilter.RPC{Method: "/s/m"}
}

func BenchmarkRPC(b *testing.B) {
	for name, test := range costs {
		b.Run(name, func(b *testing.B) {
			i, ctx, rpc := test.rpc(b)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = i.NewStream(ctx, rpc, httpfilter.NewNext(silent{}))
			}
		})
	}
}
