package e2e_test

import (
	"context"
	"net"
	"runtime"
	"sync/atomic"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	authzpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	authpb "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// authorizer decides on RPCs: it denies those with the header "deny".
type authorizer struct {
	authpb.UnimplementedAuthorizationServer
	noStats
	addr                string
	asked, opened, open atomic.Int64 // RPCs; connections
}

func startAuthorizer(t testing.TB) *authorizer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	a := &authorizer{addr: listener.Addr().String()}
	server := grpc.NewServer(grpc.StatsHandler(a))
	authpb.RegisterAuthorizationServer(server, a)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		a.awaitClosed(t)
		server.Stop()
		<-done
	})
	return a
}

// awaitClosed waits until clients have closed their connections, as they do when the garbage collector has noticed that
// nothing uses them.
func (a *authorizer) awaitClosed(t testing.TB) {
	t.Helper()
	for ctx := testutils.Context(t); a.open.Load() > 0; runtime.GC() {
		if ctx.Err() != nil {
			t.Fatal("nothing uses the connection to the authorizer, and it is open")
		}
	}
}

func (a *authorizer) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		a.opened.Add(1)
		a.open.Add(1)
	case *stats.ConnEnd:
		a.open.Add(-1)
	}
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

func (a *authorizer) target() string { return "passthrough:///" + a.addr }

// config is an ExtAuthz that asks the authorizer.
func (a *authorizer) config(fields string) *authzpb.ExtAuthz {
	pb := with(new(authzpb.ExtAuthz), `grpc_service { google_grpc { target_uri: %q } }`, a.target())
	return with(pb, "%s", fields)
}

// allowed has the authorizers in allowed_grpc_services.
func allowed(all ...*authorizer) testutils.BootstrapOption {
	services := map[string]any{}
	for _, a := range all {
		services[a.target()] = map[string]any{"channel_creds": []any{map[string]any{"type": "insecure"}}}
	}
	return testutils.TopLevel("allowed_grpc_services", services)
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

// gRFC A102, "Security Considerations", and A92, "Override Configuration".
func TestExtAuthzConfigurations(t *testing.T) {
	t.Parallel()
	const plugin = `grpc_service { google_grpc { channel_credentials_plugin {
		[type.googleapis.com/envoy.extensions.grpc_service.channel_credentials.insecure.v3.InsecureCredentials] {} } } }`
	for _, test := range []struct {
		name      string
		features  []string
		bootstrap bool // allows it
		fields    string
		override  proto.Message
		asked     int64
		code      codes.Code
		text      string // of the error
	}{
		{name: "allowed by the bootstrap", bootstrap: true, asked: 1},
		{name: "not allowed", fields: plugin, code: codes.Unavailable, text: "is not in allowed_grpc_services of the bootstrap"},
		{name: "from a trusted server", features: []string{"trusted_xds_server"}, fields: plugin, asked: 1},
		{name: "from a trusted server, without credentials", features: []string{"trusted_xds_server"}, bootstrap: true, code: codes.Unavailable,
			text: "grpc_service.google_grpc.channel_credentials_plugin: must have credentials of a type that this program supports"},
		{name: "disabled by the route", bootstrap: true, override: &routepb.FilterConfig{Disabled: true}},
		{name: "disabled is ignored in ExtAuthzPerRoute", bootstrap: true, override: with(new(authzpb.ExtAuthzPerRoute), `disabled: true`), asked: 1},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			m, backend, a := newMesh(t, test.features...), testutils.StartBackend(t, "b"), startAuthorizer(t)
			overrides := map[string]proto.Message{}
			if test.override != nil {
				overrides["authz"] = test.override
			}
			m.serveFilters(backend, overrides, xdsmsg.Filter("authz", a.config(test.fields)))
			var options []testutils.BootstrapOption
			if test.bootstrap {
				options = append(options, allowed(a))
			}
			_, err := call(testutils.Context(t), dialWith(t, "xds:///"+service, m.bootstrap(options...)), unary)
			if test.code == codes.OK {
				xdstest.NoError(t, err)
			} else {
				checkStatus(t, err, test.code, test.text)
			}
			xdstest.Equal(t, "RPCs that the service was asked about", test.asked, a.asked.Load())
		})
	}
}

// gRFC A92, "ExtAuthz Side Channel": an update recreates the channel only if the target or the credentials change.
func TestExtAuthzSideChannelOverUpdates(t *testing.T) {
	t.Parallel()
	m, backend, first, second := newMesh(t), testutils.StartBackend(t, "b"), startAuthorizer(t), startAuthorizer(t)
	cc := dialWith(t, "xds:///"+service, m.bootstrap(allowed(first, second)))
	update := func(a *authorizer, who string) {
		t.Helper()
		m.serveFilters(backend, nil, xdsmsg.Filter("authz", a.config(`failure_mode_allow: true decoder_header_mutation_rules { disallow_expression { regex: "`+who+`" } }`)))
	}
	update(first, "other")
	xdstest.NoError(t, callFor(testutils.Context(t), cc, unary).err)
	update(first, "who")
	until(t, cc, "without the header", func(string, error) bool { return backend.Last().Metadata["who"] == nil })
	xdstest.Equal(t, "connections", 1, first.opened.Load())
	update(second, "other")
	until(t, cc, "went by the other service", func(string, error) bool { return second.asked.Load() > 0 })
	first.awaitClosed(t)
}
