package e2e_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	authzpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	authpb "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// sideService is a server that filters ask. It counts the connections to it, and waits for their end.
type sideService struct {
	noStats
	addr         string
	opened, open atomic.Int64
}

func startSide(t testing.TB, register func(*grpc.Server)) *sideService {
	t.Helper()
	s := new(sideService)
	server := grpc.NewServer(grpc.StatsHandler(s))
	register(server)
	s.addr = xdstest.Serve(t, nil, server)
	t.Cleanup(func() { s.awaitClosed(t) })
	return s
}

// awaitClosed waits until clients have closed their connections, as they do when the garbage collector has noticed that
// nothing uses them.
func (s *sideService) awaitClosed(t testing.TB) {
	t.Helper()
	for ctx := testutils.Context(t); s.open.Load() > 0; runtime.GC() {
		if ctx.Err() != nil {
			t.Fatal("nothing uses the connection to the service, and it is open")
		}
	}
}

func (s *sideService) HandleConn(_ context.Context, event stats.ConnStats) {
	switch event.(type) {
	case *stats.ConnBegin:
		s.opened.Add(1)
		s.open.Add(1)
	case *stats.ConnEnd:
		s.open.Add(-1)
	}
}

func (s *sideService) target() string { return "passthrough:///" + s.addr }

// allowed has the services in allowed_grpc_services.
func allowed[S interface{ target() string }](all ...S) testutils.BootstrapOption {
	services := map[string]any{}
	for _, s := range all {
		services[s.target()] = map[string]any{"channel_creds": []any{map[string]any{"type": "insecure"}}}
	}
	return testutils.TopLevel("allowed_grpc_services", services)
}

// authorizer decides on RPCs: it denies those with the header "deny".
type authorizer struct {
	authpb.UnimplementedAuthorizationServer
	*sideService
	asked atomic.Int64
}

func startAuthorizer(t testing.TB) *authorizer {
	t.Helper()
	a := new(authorizer)
	a.sideService = startSide(t, func(server *grpc.Server) { authpb.RegisterAuthorizationServer(server, a) })
	return a
}

func (a *authorizer) Check(_ context.Context, request *authpb.CheckRequest) (*authpb.CheckResponse, error) {
	a.asked.Add(1)
	for _, header := range request.GetAttributes().GetRequest().GetHttp().GetHeaderMap().GetHeaders() {
		if header.GetKey() == "deny" {
			return with(new(authpb.CheckResponse), `status { code: 7 message: "no" } denied_response { status { code: Unauthorized } headers { header { key: "why" raw_value: "deny" } } }`), nil
		}
	}
	return with(new(authpb.CheckResponse), `ok_response { headers { header { key: "who" raw_value: "app" } } response_headers_to_add { header { key: "checked" raw_value: "yes" } } }`), nil
}

// config is an ExtAuthz that asks the authorizer.
func (a *authorizer) config(fields string) *authzpb.ExtAuthz {
	pb := with(new(authzpb.ExtAuthz), `grpc_service { google_grpc { target_uri: %q } }`, a.target())
	return with(pb, "%s", fields)
}

// gRFC A92, "Filter Behavior": the service is asked when an RPC starts. It can change metadata and response headers of an RPC
// that is allowed, and chooses status and trailers of one that is denied.
func TestExtAuthzEndToEnd(t *testing.T) {
	everyWay(t)
	t.Parallel()
	m, backend, a := newMesh(t), testutils.StartBackend(t, "b"), startAuthorizer(t)
	m.serveFilters(backend, nil, xdsmsg.Filter("authz", a.config("")))
	cc := dialWith(t, "xds:///"+service, m.bootstrap(allowed(a)))
	eachKind(t, func(t *testing.T, k kind) {
		r := callFor(testutils.Context(t), cc, k)
		xdstest.NoError(t, r.err)
		xdstest.Equal(t, "metadata", []string{"app"}, backend.Last().Metadata["who"])
		xdstest.Equal(t, "response header", []string{"yes"}, r.header["checked"])
		before := backend.Count()
		r = callFor(metadata.AppendToOutgoingContext(testutils.Context(t), "deny", "1"), cc, k)
		checkStatus(t, r.err, codes.Unauthenticated, "ext_authz: the service denies it: PermissionDenied: no")
		xdstest.Equal(t, "trailer", []string{"deny"}, r.trailer["why"])
		xdstest.Equal(t, "RPCs that reached the backend", before, backend.Count())
	})
	xdstest.Equal(t, "RPCs that the service was asked about", int64(2*len(kinds)), a.asked.Load())
	// "Header Mutations": response headers of a Trailers-Only response are not changed.
	backend.Fail(testutils.TrailersOnly(status.Error(codes.Aborted, "backend")))
	r := callFor(testutils.Context(t), cc, unary)
	checkStatus(t, r.err, codes.Aborted)
	xdstest.Equal(t, "response header", 0, len(r.header["checked"])+len(r.trailer["checked"]))
}
