package e2e_test

import (
	"context"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	sessionpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// byCookie is a stateful_session filter with a cookie for all RPCs whose path
// begins with the given one.
func byCookie(path string) *hcmpb.HttpFilter {
	return xdsmsg.Filter("session", with(new(sessionpb.StatefulSession), `session_state { name: "cookie" typed_config {
		[type.googleapis.com/envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState] {
			cookie { name: "affinity" path: %q ttl { seconds: 120 } }
		}
	} }`, path))
}

// stickyCluster is an EDS cluster whose sessions stay with endpoints that drain.
func stickyCluster(name string) *clusterpb.Cluster {
	return with(xdsmsg.EDSCluster(name, ""), `common_lb_config { override_host_status { statuses: [UNKNOWN, HEALTHY, DRAINING] } }`)
}

// filtered are a Listener with the filter and a RouteConfiguration, as chain.
func filtered(filter *hcmpb.HttpFilter, routes ...*routepb.Route) []proto.Message {
	return []proto.Message{xdsmsg.DefaultListener(service, service, filter), xdsmsg.RouteConfig(service, service, routes...)}
}

// draining are endpoints of a cluster, those of the backends in drained DRAINING.
func draining(name string, all []*testutils.Backend, drained ...*testutils.Backend) *endpointpb.ClusterLoadAssignment {
	l := xdsmsg.In("zone")
	for _, b := range all {
		e := xdsmsg.Endpoint{Addr: b.Addr(), Health: corepb.HealthStatus_HEALTHY}
		if slices.Contains(drained, b) {
			e.Health = corepb.HealthStatus_DRAINING
		}
		l.Endpoints = append(l.Endpoints, e)
	}
	return xdsmsg.Endpoints(name, l)
}

// session keeps the cookie of one session, as an application would.
type session struct {
	mu     sync.Mutex
	cookie *http.Cookie
	set    int // how often it was
}

// call makes an RPC of the session and returns the id of the backend that
// answered.
func (s *session) call(ctx context.Context, t testing.TB, cc *grpc.ClientConn, k kind) string {
	t.Helper()
	s.mu.Lock()
	if s.cookie != nil {
		ctx = metadata.AppendToOutgoingContext(ctx, "cookie", s.cookie.Name+"="+s.cookie.Value)
	}
	s.mu.Unlock()
	r := callFor(ctx, cc, k)
	if r.err != nil {
		t.Fatalf("%s RPC: %v", k, r.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range r.header["set-cookie"] {
		c, err := http.ParseSetCookie(line)
		xdstest.NoError(t, err)
		s.cookie, s.set = c, s.set+1
	}
	return backendID(r.header)
}

// keepingCookies is the interceptor that docs/tasks/sessions.md proposes.
func keepingCookies(jar http.CookieJar) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		u := &url.URL{Scheme: "https", Host: "session", Path: method}
		for _, c := range jar.Cookies(u) {
			ctx = metadata.AppendToOutgoingContext(ctx, "cookie", c.Name+"="+c.Value)
		}
		var header metadata.MD
		err := invoke(ctx, method, req, reply, cc, append(opts, grpc.Header(&header))...)
		jar.SetCookies(u, (&http.Response{Header: http.Header{"Set-Cookie": header["set-cookie"]}}).Cookies())
		return err
	}
}

func TestACookieJarKeepsASession(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.set(clusterOf("c", backends(t, "a", "b", "c")...), filtered(byCookie("/grpc.testing.TestService"), toCluster("c")))
	seen := map[string]bool{}
	for len(seen) < 3 {
		jar, err := cookiejar.New(nil)
		xdstest.NoError(t, err)
		cc := m.dial("xds:///"+service, grpc.WithUnaryInterceptor(keepingCookies(jar)))
		first := backendID(callFor(testutils.Context(t), cc, unary).header)
		for range 9 {
			if got := backendID(callFor(testutils.Context(t), cc, unary).header); got != first {
				t.Fatalf("a session with %s goes to %q", first, got)
			}
		}
		seen[first] = true
	}
}

// Sessions keep to their endpoint, and no RPC fails, while endpoints drain and
// return, change their priority, and others come and go.
func TestSessionsUnderUpdates(t *testing.T) {
	everyWay(t)
	overLinks(t, func(t *testing.T) {
		m := newMesh(t)
		ctx := testutils.Context(t)
		all := backends(t, "a", "b", "c", "d")
		cc := m.dialServing(stickyCluster("c"), draining("c", all[:3]), filtered(byCookie(""), toCluster("c")))
		s := new(session)
		for s.call(ctx, t, cc, unary) != "a" {
			s = new(session)
		}
		l := startLoad(t, cc)
		stop, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		for _, k := range kinds {
			wg.Go(func() {
				for ; stop.Err() == nil; <-time.After(5 * time.Millisecond) {
					if got := s.call(ctx, t, cc, k); got != "a" {
						t.Errorf("a %s RPC of the session goes to %s", k, got)
						return
					}
				}
			})
		}
		priorities := func(first, second *testutils.Backend) *endpointpb.ClusterLoadAssignment {
			return xdsmsg.Endpoints("c", xdsmsg.In("one", first.Addr()), atPriority1(second))
		}
		for range 2 {
			for _, step := range []struct {
				endpoints proto.Message
				others    []*testutils.Backend
			}{
				{draining("c", all[:3], all[0]), all[1:3]},
				{draining("c", all, all[0], all[1]), all[2:]},
				{priorities(all[1], all[0]), all[1:2]},
				{priorities(all[0], all[1]), all[:1]},
				{draining("c", all[:3]), all[:3]},
			} {
				m.set(step.endpoints)
				l.await(t, step.others...)
			}
		}
		cancel()
		wg.Wait()
		l.Stop(t)
	})
}
