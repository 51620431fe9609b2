package e2e_test

import (
	"testing"

	matcherpb "github.com/cncf/xds/go/xds/type/matcher/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matchingpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/matcher/action/v3" // SkipFilter
	compositepb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// choosing is a matcher by which RPCs with a value for the header "k" go through a filter, and others through none.
func choosing(value string, config proto.Message) *matcherpb.Matcher {
	m := with(new(matcherpb.Matcher), `
		matcher_tree {
			input { typed_config { [type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput] { header_name: "k" } } }
			exact_match_map { map { key: %q value { action {} } } }
		}
		on_no_match { action { typed_config { [type.googleapis.com/envoy.extensions.filters.common.matcher.action.v3.SkipFilter] {} } } }`, value)
	execute := &compositepb.ExecuteFilterAction{TypedConfig: &corepb.TypedExtensionConfig{Name: "inside", TypedConfig: xdsmsg.Any(config)}}
	m.GetMatcherTree().GetExactMatchMap().Map[value].GetAction().TypedConfig = xdsmsg.Any(execute)
	return m
}

func compositeOf(m *matcherpb.Matcher) *matchingpb.ExtensionWithMatcher {
	return &matchingpb.ExtensionWithMatcher{XdsMatcher: m, ExtensionConfig: &corepb.TypedExtensionConfig{TypedConfig: xdsmsg.Any(new(compositepb.Composite))}}
}

// gRFC A103, "Filter Behavior": RPCs go through the filters that the matcher chooses, that of the route if it has one; one that asks a
// service, in an override, too.
func TestCompositeEndToEnd(t *testing.T) {
	everyWay(t)
	t.Parallel()
	m, backend, a := newMesh(t), testutils.StartBackend(t, "b"), startAuthorizer(t)
	filter := xdsmsg.Filter("f", compositeOf(choosing("abort", abortWith(codes.Aborted))))
	m.serveFilters(backend, nil, filter)
	cc := dialWith(t, "xds:///"+service, m.bootstrap(allowed(a)))
	call := func(k kind, md ...string) error {
		return callFor(metadata.AppendToOutgoingContext(testutils.Context(t), md...), cc, k).err
	}
	eachKind(t, func(t *testing.T, k kind) {
		checkStatus(t, call(k, "k", "abort"), codes.Aborted)
		xdstest.NoError(t, call(k, "k", "other"))
		xdstest.NoError(t, call(k))
	})
	override := &matchingpb.ExtensionWithMatcherPerRoute{XdsMatcher: choosing("ask", a.config(""))}
	m.serveFilters(backend, map[string]proto.Message{"f": override}, filter)
	m.MustWait(testutils.Context(t), t, xdstest.ACKOf(xdsmsg.RouteType))
	for call(unary, "k", "abort") != nil {
	}
	eachKind(t, func(t *testing.T, k kind) {
		checkStatus(t, call(k, "k", "ask", "deny", "1"), codes.Unauthenticated, "ext_authz: the service denies it")
		xdstest.NoError(t, call(k, "k", "ask"))
		xdstest.NoError(t, call(k, "deny", "1"))
	})
	xdstest.Equal(t, "RPCs that the service was asked about", int64(2*len(kinds)), a.asked.Load())
}
