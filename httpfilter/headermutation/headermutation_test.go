package headermutation

import (
	"strings"
	"testing"

	mutationpb "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func removeOn(m *matcherpb.StringMatcher) *mutationpb.HeaderMutation {
	return &mutationpb.HeaderMutation{Action: &mutationpb.HeaderMutation_RemoveOnMatch_{RemoveOnMatch: &mutationpb.HeaderMutation_RemoveOnMatch{KeyMatcher: m}}}
}

func set(name, value string) *mutationpb.HeaderMutation {
	return &mutationpb.HeaderMutation{Action: &mutationpb.HeaderMutation_Append{Append: &corepb.HeaderValueOption{
		Header: &corepb.HeaderValue{Key: name, Value: value}, AppendAction: corepb.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}}}
}

// Mutations of the configuration come before those of the override, each in
// their order.
func TestOrder(t *testing.T) {
	t.Parallel()
	top, err := filter{}.ParseConfig(xdsmsg.Any(&filterpb.HeaderMutation{Mutations: &filterpb.Mutations{
		RequestMutations: []*mutationpb.HeaderMutation{set("a", "top"), set("b", "top"), set("b", "top again")},
	}}))
	xdstest.NoError(t, err)
	override, err := filter{}.ParseOverride(xdsmsg.Any(&filterpb.HeaderMutationPerRoute{Mutations: &filterpb.Mutations{
		RequestMutations: []*mutationpb.HeaderMutation{set("a", "route"), set(":path", "/ignored")},
	}}))
	xdstest.NoError(t, err)
	for _, test := range []struct {
		name     string
		override any
		want     metadata.MD
	}{
		{"alone", nil, metadata.MD{"a": {"top"}, "b": {"top again"}}},
		{"with an override", override, metadata.MD{"a": {"route"}, "b": {"top again"}}},
	} {
		i, err := filter{}.ClientInterceptor(top, test.override)
		xdstest.NoError(t, err)
		md := metadata.MD{}
		i.(*config).request.Apply(md)
		xdstest.Equal(t, test.name, test.want, md)
	}
}

func TestNothingToDoLeavesTheFilterOut(t *testing.T) {
	t.Parallel()
	top, err := filter{}.ParseConfig(xdsmsg.Any(new(filterpb.HeaderMutation)))
	xdstest.NoError(t, err)
	if i, err := (filter{}).ClientInterceptor(top, nil); i != nil || err != nil {
		t.Errorf("%v, %v", i, err)
	}
}

func TestEachConfigurationHasItsType(t *testing.T) {
	t.Parallel()
	if _, err := (filter{}).ParseConfig(xdsmsg.Any(new(filterpb.HeaderMutationPerRoute))); err == nil {
		t.Error("HeaderMutationPerRoute is accepted as a top-level configuration")
	}
	if _, err := (filter{}).ParseOverride(xdsmsg.Any(new(filterpb.HeaderMutation))); err == nil {
		t.Error("HeaderMutation is accepted as an override")
	}
}

func TestRemoveOnMatch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		matcher *matcherpb.StringMatcher
		want    []string // what stays
	}{
		"exact":      {&matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: "x-a"}}, []string{"grpc-x-a", "x-ab", "y-x-a"}},
		"prefix":     {&matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Prefix{Prefix: "x-"}}, []string{"grpc-x-a", "y-x-a"}},
		"suffix":     {&matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Suffix{Suffix: "-a"}}, []string{"grpc-x-a", "x-ab"}},
		"contains":   {&matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Contains{Contains: "X-A"}, IgnoreCase: true}, []string{"grpc-x-a"}},
		"safe_regex": {&matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_SafeRegex{SafeRegex: &matcherpb.RegexMatcher{Regex: "x-.*"}}}, []string{"grpc-x-a", "y-x-a"}},
		"not set":    {new(matcherpb.StringMatcher), []string{"grpc-x-a", "x-a", "x-ab", "y-x-a"}},
		"no regex":   {&matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_SafeRegex{SafeRegex: &matcherpb.RegexMatcher{Regex: "y)|(x"}}}, []string{"grpc-x-a", "x-a", "x-ab", "y-x-a"}},
		"too large":  {&matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_SafeRegex{SafeRegex: &matcherpb.RegexMatcher{Regex: `x-(a|\pL{100})`}}}, []string{"grpc-x-a", "x-a", "x-ab", "y-x-a"}},
		"broken":     {&matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_SafeRegex{SafeRegex: &matcherpb.RegexMatcher{Regex: "("}}}, []string{"grpc-x-a", "x-a", "x-ab", "y-x-a"}},
	} {
		c, err := filter{}.ParseConfig(xdsmsg.Any(&filterpb.HeaderMutation{Mutations: &filterpb.Mutations{
			ResponseMutations: []*mutationpb.HeaderMutation{removeOn(test.matcher)},
		}}))
		xdstest.NoError(t, err)
		md := metadata.Pairs("x-a", "", "x-ab", "", "y-x-a", "", "grpc-x-a", "")
		c.(*config).response.Apply(md)
		want := metadata.MD{}
		for _, k := range test.want {
			want.Set(k, "")
		}
		xdstest.Equal(t, name, want, md)
	}
}

// Each RPC goes through the mutations.
func TestMutationsAreLimited(t *testing.T) {
	t.Parallel()
	parse := func(n int) error {
		mutations := make([]*mutationpb.HeaderMutation, n)
		for i := range mutations {
			mutations[i] = set("a", "b")
		}
		_, err := filter{}.ParseConfig(xdsmsg.Any(&filterpb.HeaderMutation{Mutations: &filterpb.Mutations{ResponseMutations: mutations}}))
		return err
	}
	xdstest.NoError(t, parse(bounds.HeaderEdits))
	if err := parse(bounds.HeaderEdits + 1); err == nil || !strings.Contains(err.Error(), "mutations.response_mutations has 1001 entries, more than the 1000") {
		t.Errorf("got error %v", err)
	}
}
