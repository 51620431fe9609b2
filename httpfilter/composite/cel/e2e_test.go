package cel_test

import (
	"testing"

	celgo "cel.dev/cel-go/cel"
	celpb "cel.dev/expr"
	xdscorepb "github.com/cncf/xds/go/xds/core/v3"
	matcherpb "github.com/cncf/xds/go/xds/type/matcher/v3"
	xdstypepb "github.com/cncf/xds/go/xds/type/v3"
	matchingpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds"
	_ "github.com/dynxds/dynxds/httpfilter/composite/cel"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// A composite filter whose tree has a CEL expression aborts RPCs that the expression holds for.
func TestEndToEnd(t *testing.T) {
	t.Parallel()
	config := xdsmsg.With(new(matchingpb.ExtensionWithMatcher), `
		extension_config { typed_config { [type.googleapis.com/envoy.extensions.filters.http.composite.v3.Composite] {} } }
		xds_matcher {
			matcher_list { matchers {
				predicate { single_predicate { input { typed_config { [type.googleapis.com/xds.type.matcher.v3.HttpAttributesCelMatchInput] {} } } } }
				on_match { action { typed_config { [type.googleapis.com/envoy.extensions.filters.http.composite.v3.ExecuteFilterAction] {
					typed_config { name: "abort" typed_config { [type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault] {
						abort { grpc_status: %d percentage { numerator: 100 } }
					} } }
				} } } }
			} }
			on_no_match { action { typed_config { [type.googleapis.com/envoy.extensions.filters.common.matcher.action.v3.SkipFilter] {} } } }
		}`, codes.Aborted)
	matcher := &matcherpb.CelMatcher{ExprMatch: &xdstypepb.CelExpression{CelExprChecked: checked(t, "request.headers['k'] == 'abort' && request.path.endsWith('Call')")}}
	config.XdsMatcher.GetMatcherList().Matchers[0].Predicate.GetSinglePredicate().Matcher = &matcherpb.Matcher_MatcherList_Predicate_SinglePredicate_CustomMatch{
		CustomMatch: &xdscorepb.TypedExtensionConfig{Name: "cel", TypedConfig: xdsmsg.Any(matcher)},
	}

	server, backend := testutils.StartFakeServer(t), testutils.StartBackend(t, "b")
	server.Set(t,
		xdsmsg.DefaultListener("s", "r", xdsmsg.Filter("composite", config)),
		xdsmsg.RouteConfig("r", "s", xdsmsg.PrefixRoute("", "c")),
		xdsmsg.EDSCluster("c", ""), xdsmsg.SimpleEndpoints("c", backend.Addr()),
	)
	opts := append(dynxds.DialOptions(dynxds.WithBootstrap(server.Bootstrap("n"))), grpc.WithTransportCredentials(insecure.NewCredentials()))
	cc, err := grpc.NewClient("xds:///s", opts...)
	xdstest.NoError(t, err)
	defer cc.Close()
	for value, want := range map[string]codes.Code{"abort": codes.Aborted, "other": codes.OK} {
		ctx := metadata.AppendToOutgoingContext(testutils.Context(t), "k", value)
		_, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, new(testgrpc.Empty))
		xdstest.Equal(t, "k="+value, want, status.Code(err))
	}
}

// checked returns an expression as a control plane checks it.
func checked(t testing.TB, text string) *celpb.CheckedExpr {
	t.Helper()
	env, err := celgo.NewEnv(celgo.Variable("request", celgo.MapType(celgo.StringType, celgo.DynType)))
	xdstest.NoError(t, err)
	tree, issues := env.Compile(text)
	xdstest.NoError(t, issues.Err())
	pb, err := celgo.AstToCheckedExpr(tree)
	xdstest.NoError(t, err)
	raw, err := proto.Marshal(pb)
	xdstest.NoError(t, err)
	canonical := new(celpb.CheckedExpr)
	xdstest.NoError(t, proto.Unmarshal(raw, canonical))
	return canonical
}
