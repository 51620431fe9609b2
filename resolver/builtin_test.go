package resolver

import (
	"testing"

	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// A program that uses NewBuilder without the blank import of the module's root, like this test,
// has the built-in filters.
func TestNewBuilderNeedsNoBlankImport(t *testing.T) {
	t.Parallel()
	const prefix = "type.googleapis.com/envoy.extensions.filters.http."
	for _, filter := range []string{
		"fault.v3.HTTPFault", "gcp_authn.v3.GcpAuthnFilterConfig", "header_mutation.v3.HeaderMutation", "local_ratelimit.v3.LocalRateLimit",
		"rbac.v3.RBAC", "router.v3.Router", "stateful_session.v3.StatefulSession",
	} {
		if httpfilter.Get(prefix+filter) == nil {
			t.Errorf("no filter for %s", filter)
		}
	}
	const name = "echo.example.com"
	server, backend := xdstest.StartServer(t), testutils.StartBackend(t, "b1")
	server.Set(t,
		xdsmsg.DefaultListener(name, "r", xdsmsg.Filter("fault", new(faultpb.HTTPFault))), xdsmsg.RouteConfig("r", name, xdsmsg.PrefixRoute("", "c")),
		xdsmsg.EDSCluster("c", ""), xdsmsg.SimpleEndpoints("c", backend.Addr()))
	builder, err := NewBuilder(server.Bootstrap(t.Name()))
	xdstest.NoError(t, err)
	cc, err := grpc.NewClient("xds:///"+name, grpc.WithResolvers(builder), grpc.WithTransportCredentials(insecure.NewCredentials()))
	xdstest.NoError(t, err)
	defer cc.Close()
	if got, err := invoke(testutils.Context(t), cc); err != nil || got != backend.ID() {
		t.Errorf("answered by %q, %v", got, err)
	}
}
