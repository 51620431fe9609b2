package statuspage

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startChannel starts a control plane with the resources, and a channel to "service" that it
// configures. The channel has not been used yet.
func startChannel(t testing.TB, node string, resources ...proto.Message) (*meshtest.Server, *grpc.ClientConn) {
	t.Helper()
	plane := meshtest.StartServer(t)
	plane.Set(t, resources...)
	return plane, dial(t, plane, node)
}

// oneCluster has a route for all methods to one cluster with one backend.
func oneCluster(name string, backend *testutils.Backend) []proto.Message {
	return []proto.Message{
		xdsmsg.DefaultListener("service", "routes"), xdsmsg.RouteConfig("routes", "service", xdsmsg.PrefixRoute("", name)),
		xdsmsg.EDSCluster(name, ""), xdsmsg.SimpleEndpoints(name, backend.Addr()),
	}
}

func dial(t testing.TB, plane *meshtest.Server, node string, opts ...testutils.BootstrapOption) *grpc.ClientConn {
	t.Helper()
	return dialTo(t, plane, node, "service", opts...)
}

// dialTo is dial for a service of another name. What is counted of RPCs is counted for the name.
func dialTo(t testing.TB, plane *meshtest.Server, node, service string, opts ...testutils.BootstrapOption) *grpc.ClientConn {
	t.Helper()
	builder, err := resolver.NewBuilder(plane.Bootstrap(node, opts...))
	xdstest.NoError(t, err)
	conn, err := grpc.NewClient("xds:///"+service, grpc.WithResolvers(builder), grpc.WithTransportCredentials(insecure.NewCredentials()))
	xdstest.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// call makes an RPC.
func call(t *testing.T, conn *grpc.ClientConn) error {
	t.Helper()
	_, err := testgrpc.NewTestServiceClient(conn).EmptyCall(testutils.Context(t), new(testgrpc.Empty), grpc.WaitForReady(true))
	return err
}

// newHandler is Handler, but for its options of this package.
func newHandler(opts ...Option) *handler { return Handler(opts...).(*handler) }

// quick returns a handler that looks for changes often.
func quick(opts ...Option) *handler {
	h := newHandler(opts...)
	h.refresh = 5 * time.Millisecond
	return h
}

// serve serves a handler until the test ends.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// get asks a handler in memory, for a host that is allowed.
func get(t *testing.T, h http.Handler, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Host = "localhost:1"
	h.ServeHTTP(w, r.WithContext(testutils.Context(t)))
	return w
}

// section asks for one section with further parameters.
func section[T any](t *testing.T, h http.Handler, name string, parameters ...string) T {
	t.Helper()
	query := url.Values{"show": {name}}
	for i := 0; i < len(parameters); i += 2 {
		query.Add(parameters[i], parameters[i+1])
	}
	w := get(t, h, "/data?"+query.Encode())
	if w.Code != http.StatusOK {
		t.Fatalf("data: %d %s", w.Code, w.Body)
	}
	var all map[string]json.RawMessage
	var one T
	xdstest.NoError(t, json.Unmarshal(w.Body.Bytes(), &all))
	xdstest.NoError(t, json.Unmarshal(all[name], &one))
	return one
}

// await asks for a section until it is as wanted.
func await[T any](t *testing.T, h http.Handler, name string, ok func(T) bool, parameters ...string) T {
	t.Helper()
	ctx := testutils.Context(t)
	for {
		got := section[T](t, h, name, parameters...)
		if ok(got) {
			return got
		}
		if err := ctx.Err(); err != nil {
			text, _ := json.MarshalIndent(got, "", " ")
			t.Fatalf("%s never became as wanted; got %s", name, text)
		}
	}
}

// decodedMatch returns the match of a route as the decoder makes it.
func decodedMatch(t *testing.T, route *routepb.Route) *matching.Route {
	t.Helper()
	value, err := xdsresource.RouteConfigurationType.Decode(xdsmsg.Any(xdsmsg.RouteConfig("r", "*", route)), xdsclient.DecodeOptions{})
	xdstest.NoError(t, err)
	return &value.(*xdsresource.RouteConfiguration).VirtualHosts[0].Routes[0].Match
}
