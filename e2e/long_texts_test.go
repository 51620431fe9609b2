package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// longText is a text of 1 MB with what is not printable in it.
var longText = "a\x1b[31m" + strings.Repeat("x", 1_000_000)

// longName is a longText for fields that must be printable.
var longName = strings.Repeat("x", 1_000_000)

// Whatever the control plane or the caller puts into an RPC, the error with which the client ends the RPC is short.
func TestLongTextsInErrors(t *testing.T) {
	t.Parallel()
	const found = `match { path: "/svc/m" } `
	for name, tc := range map[string]struct {
		route     *routepb.Route // nil: to the cluster "c"
		policy    string         // of the ClusterLoadAssignment
		endpoint  string         // fields of the endpoint
		method    string         // "": "/svc/m"
		header    string         // the value of x-cluster and x-host
		call      []grpc.CallOption
		dial      []grpc.DialOption
		resources []any
		want      string
	}{
		"method":               {route: routeOf(found + `route { cluster: "c" }`), method: "/svc/" + longText, want: "no route matches"},
		"direct response":      {route: routeOf(found+`direct_response { status: 503 body { inline_string: %q } }`, longText), want: `a\x1b[31m`},
		"redirect host":        {route: routeOf(found+`redirect { host_redirect: %q }`, longName), want: "redirected (301) to http://xxx"},
		"redirected path":      {route: routeOf(`match { prefix: "/" } redirect { prefix_rewrite: "/b/" }`), method: "/svc/" + longText, want: "redirected (301)"},
		"cluster header":       {route: routeOf(found + `route { cluster_header: "x-cluster" }`), header: longName, want: "which no route of the virtual host mentions"},
		"name of header":       {route: routeOf(found+`route { cluster_header: %q }`, longName), want: "which names the cluster"},
		"rewritten method":     {route: routeOf(`match { prefix: "/" } route { cluster: "c" regex_rewrite { pattern { regex: "^/" } substitution: "" } }`), method: "/" + longName, want: "which is not a path"},
		"name of route":        {route: routeOf(found+`name: %q route { cluster: "c" regex_rewrite { pattern { regex: "^.*$" } substitution: "x" } }`, longName), want: "which is not a path"},
		"cluster":              {route: routeOf(found+`route { cluster: %q }`, longName), want: "name is longer"},
		"authority of RPC":     {call: []grpc.CallOption{grpc.CallAuthority(longName)}, want: "grpc.CallAuthority of 1000000 bytes"},
		"host rewrite":         {route: routeOf(found+`route { cluster: "c" host_rewrite_literal: %q }`, longName), want: "has 1000000 bytes, more than the 1024 of an authority"},
		"hostname":             {endpoint: fmt.Sprintf("hostname: %q", longName), want: "has 1000000 bytes, more than the 1024 of an authority"},
		"drop category":        {policy: fmt.Sprintf("drop_overloads { category: %q drop_percentage { numerator: 100 } }", longName), want: "dropped"},
		"authority of channel": {dial: []grpc.DialOption{grpc.WithAuthority(longName)}, want: "has no virtual host for authority"},
		"virtual host": {resources: []any{xdsmsg.RouteConfigOf(service,
			xdsmsg.VirtualHost(longName, []string{"*"}, routeOf(`match { path: "/other" } route { cluster: "c" }`)))}, want: "no route matches"},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			m := newMesh(t, string(bootstrap.FeatureTrustedXDSServer))
			route := tc.route
			if route == nil {
				route = toCluster("c")
			}
			rc := xdsmsg.RouteConfig(service, service, route)
			with(rc, `max_direct_response_body_size_bytes { value: 2000000 }`)
			cla := endpointsOf("c", testutils.StartBackend(t, "b"))
			with(cla, "policy { %s }", tc.policy)
			with(cla.Endpoints[0].LbEndpoints[0].GetEndpoint(), "%s", tc.endpoint)
			m.set(xdsmsg.DefaultListener(service, service), rc, xdsmsg.EDSCluster("c", ""), cla)
			if tc.resources != nil {
				m.set(tc.resources...)
			}
			cc := m.dial("xds:///"+service, tc.dial...)
			ctx := testutils.Context(t)
			if tc.header != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "x-cluster", tc.header)
			}
			method := tc.method
			if method == "" {
				method = "/svc/m"
			}
			checkShort(t, invoke(ctx, cc, method, tc.call...), tc.want)
			stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, tc.call...)
			if err == nil {
				err = stream.RecvMsg(new(emptypb.Empty))
			}
			checkShort(t, err, tc.want)
		})
	}
}

func invoke(ctx context.Context, cc *grpc.ClientConn, method string, opts ...grpc.CallOption) error {
	return cc.Invoke(ctx, method, new(emptypb.Empty), new(emptypb.Empty), opts...)
}

// checkShort fails the test unless the error has a short, printable message with the text.
func checkShort(t *testing.T, err error, want string) {
	t.Helper()
	message := status.Convert(err).Message()
	if err == nil || len(message) > 2*bounds.ErrorText+500 || !strings.Contains(message, want) || strings.Contains(message, "\x1b") {
		t.Errorf("an error of %d bytes, want %d at most and %q: %.3000q", len(message), 2*bounds.ErrorText+500, want, message)
	}
}
