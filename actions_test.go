package dynxds_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/testutils/xdsmsg"
)

// toCluster is a route of all RPCs to the cluster, for a test to add to.
func toCluster(cluster string) *routepb.Route { return xdsmsg.PrefixRoute("", cluster) }

// serveRoutes configures the service with the routes, and one cluster for each
// of the backends, of the backend's name.
func (m *mesh) serveRoutes(routes []*routepb.Route, backends ...*testutils.Backend) {
	m.t.Helper()
	resources := chain(service, routes...)
	for _, b := range backends {
		resources = append(resources, clusterOf(b.ID(), b)...)
	}
	m.set(resources...)
}

func eachKind(t *testing.T, test func(t *testing.T, k kind)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) { test(t, k) })
	}
}

// reply is what an RPC's call options report.
type reply struct {
	header, trailer metadata.MD
	err             error
}

func callFor(ctx context.Context, cc *grpc.ClientConn, k kind, opts ...grpc.CallOption) reply {
	var r reply
	opts = append(opts, grpc.Header(&r.header), grpc.Trailer(&r.trailer), grpc.WaitForReady(true))
	_, r.err = call(ctx, cc, k, opts...)
	return r
}

func header(name, value string) *corepb.HeaderValueOption {
	return &corepb.HeaderValueOption{Header: &corepb.HeaderValue{Key: name, Value: value}}
}

func TestHeaderEditsEndToEnd(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	backend := testutils.StartBackend(t, "b")
	route := toCluster("b")
	route.RequestHeadersToAdd = []*corepb.HeaderValueOption{header("added", "by-the-route")}
	route.RequestHeadersToRemove = []string{"removed"}
	route.ResponseHeadersToAdd = []*corepb.HeaderValueOption{header("answered", "by-the-route")}
	m.serveRoutes([]*routepb.Route{route}, backend)
	cc := m.dial("xds:///" + service)
	eachKind(t, func(t *testing.T, k kind) {
		r := callFor(metadata.AppendToOutgoingContext(testutils.Context(t), "removed", "v"), cc, k)
		if r.err != nil {
			t.Fatal(r.err)
		}
		md := backend.Last().Metadata
		if !slices.Equal(md["added"], []string{"by-the-route"}) || md["removed"] != nil {
			t.Errorf("the backend saw %v", md)
		}
		if !slices.Equal(r.header["answered"], []string{"by-the-route"}) || backendID(r.header) != "b" {
			t.Errorf("the application saw %v", r.header)
		}
	})
}

func TestPathRewriteEndToEnd(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	backend := testutils.StartBackend(t, "b")
	route := xdsmsg.Route(xdsmsg.Prefix("/v2."), xdsmsg.ToCluster("b"))
	route.GetRoute().PrefixRewrite = "/grpc."
	m.serveRoutes([]*routepb.Route{route}, backend)
	cc := m.dial("xds:///" + service)
	if err := cc.Invoke(testutils.Context(t), "/v2.testing.TestService/EmptyCall", xdsmsg.ToCluster(""), new(routepb.RouteAction), grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	if got := backend.Last().Method; got != emptyMethod {
		t.Errorf("the backend saw %q", got)
	}
}

// TestAuthorityRewriteEndToEnd: gRFC A81: only if the server is a
// trusted_xds_server.
func TestAuthorityRewriteEndToEnd(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	backend := testutils.StartBackend(t, "b")
	route := toCluster("b")
	route.GetRoute().HostRewriteSpecifier = &routepb.RouteAction_HostRewriteLiteral{HostRewriteLiteral: "rewritten"}
	m.serveRoutes([]*routepb.Route{route}, backend)
	for want, features := range map[string][]string{service: nil, "rewritten": {"trusted_xds_server"}} {
		b, err := resolver.NewBuilder(m.Bootstrap(t.Name()+want, testutils.ServerFeatures(features...)))
		if err != nil {
			t.Fatal(err)
		}
		cc := dial(t, "xds:///"+service, grpc.WithResolvers(b))
		eachKind(t, func(t *testing.T, k kind) {
			if r := callFor(testutils.Context(t), cc, k); r.err != nil {
				t.Fatal(r.err)
			}
			if got := backend.Last().Authority; got != want {
				t.Errorf("features %v: authority %q, want %q", features, got, want)
			}
		})
		if r := callFor(testutils.Context(t), cc, unary, grpc.CallAuthority("mine")); r.err != nil || backend.Last().Authority != "mine" {
			t.Errorf("grpc.CallAuthority: %v, authority %q", r.err, backend.Last().Authority)
		}
	}
}

// TestAutoHostRewriteEndToEnd: gRFC A81: the authority is the hostname of the
// endpoint that was picked, only if the server is a trusted_xds_server.
func TestAutoHostRewriteEndToEnd(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	all := backends(t, "a", "b", "nameless")
	route := toCluster("c")
	route.GetRoute().HostRewriteSpecifier = &routepb.RouteAction_AutoHostRewrite{AutoHostRewrite: wrapperspb.Bool(true)}
	endpoints := draining("c", all)
	for i, name := range []string{"a.example", "b.example"} {
		endpoints.Endpoints[0].LbEndpoints[i].GetEndpoint().Hostname = name
	}
	m.set(append(chain(service, route), xdsmsg.EDSCluster("c", ""), endpoints)...)
	for _, test := range []struct {
		name     string
		features []string
		opts     []grpc.CallOption
		want     map[string]string
	}{
		{"a server that is not trusted", nil, nil, map[string]string{"a": service, "b": service, "nameless": service}},
		{"a trusted one", []string{"trusted_xds_server"}, nil, map[string]string{"a": "a.example", "b": "b.example", "nameless": service}},
		{"grpc.CallAuthority", []string{"trusted_xds_server"}, []grpc.CallOption{grpc.CallAuthority("mine")}, map[string]string{"a": "mine", "b": "mine", "nameless": "mine"}},
	} {
		b, err := resolver.NewBuilder(m.Bootstrap(t.Name()+test.name, testutils.ServerFeatures(test.features...)))
		if err != nil {
			t.Fatal(err)
		}
		cc := dial(t, "xds:///"+service, grpc.WithResolvers(b))
		for _, k := range kinds {
			for got := map[string]string{}; len(got) < len(all); {
				r := callFor(testutils.Context(t), cc, k, test.opts...)
				if r.err != nil {
					t.Fatal(r.err)
				}
				for _, b := range all {
					if id := b.ID(); id == backendID(r.header) {
						if got[id] = b.Last().Authority; got[id] != test.want[id] {
							t.Errorf("%s: backend %s sees authority %q of a %s RPC, want %q", test.name, id, got[id], k, test.want[id])
						}
					}
				}
			}
		}
	}
}

func TestDirectResponseAndRedirectEndToEnd(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	direct := &routepb.Route{Match: xdsmsg.Path(unaryMethod), Action: &routepb.Route_DirectResponse{DirectResponse: &routepb.DirectResponseAction{
		Status: 503, Body: &corepb.DataSource{Specifier: &corepb.DataSource_InlineString{InlineString: "closed for today"}},
	}}}
	redirect := &routepb.Route{Match: xdsmsg.Prefix(""), Action: &routepb.Route_Redirect{Redirect: &routepb.RedirectAction{
		PathRewriteSpecifier: &routepb.RedirectAction_PathRedirect{PathRedirect: "/elsewhere"},
	}}}
	m.serveRoutes([]*routepb.Route{direct, redirect})
	cc := m.dial("xds:///" + service)
	eachKind(t, func(t *testing.T, k kind) {
		r := callFor(testutils.Context(t), cc, k)
		if k == unary {
			checkStatus(t, r.err, codes.Unavailable, "closed for today")
			return
		}
		checkStatus(t, r.err, codes.Unknown, "/elsewhere")
		if got := strings.Join(r.trailer["location"], ","); got != "http://"+service+"/elsewhere" {
			t.Errorf("location %q", got)
		}
	})
}

// TestRetryEndToEnd: gRFC A44.
func TestRetryEndToEnd(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"route", "virtual host"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t)
			backend := testutils.StartBackend(t, "b")
			policy := &routepb.RetryPolicy{
				RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(2),
				RetryBackOff: &routepb.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(time.Millisecond)},
			}
			route := toCluster("b")
			rc := xdsmsg.RouteConfig(service, service, route)
			if level == "route" {
				route.GetRoute().RetryPolicy = policy
			} else {
				rc.VirtualHosts[0].RetryPolicy = policy
			}
			m.set(append(clusterOf("b", backend), xdsmsg.DefaultListener(service, service), rc)...)
			cc := m.dial("xds:///" + service)
			eachKind(t, func(t *testing.T, k kind) {
				var n atomic.Int32
				backend.SetBehaviour(func(context.Context, testutils.RPC) error {
					if n.Add(1) < 3 {
						return testutils.TrailersOnly(status.Error(codes.Unavailable, "not yet"))
					}
					return nil
				})
				if r := callFor(testutils.Context(t), cc, k); r.err != nil || n.Load() != 3 {
					t.Errorf("%d attempts: %v", n.Load(), r.err)
				}
				if got := backend.Last().Metadata["grpc-previous-rpc-attempts"]; !slices.Equal(got, []string{"2"}) {
					t.Errorf("grpc-previous-rpc-attempts %q", got)
				}
			})
		})
	}
}

// The retries of an RPC reach the cluster that its route names by then.
func TestRetriesFollowTheRoutes(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	before, after := testutils.StartBackend(t, "before"), testutils.StartBackend(t, "after")
	policy := &routepb.RetryPolicy{RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(4)}
	routes := func(cluster string) []*routepb.Route {
		route := toCluster(cluster)
		route.GetRoute().RetryPolicy = policy
		return []*routepb.Route{route}
	}
	m.serveRoutes(routes("before"), before, after)
	cc := m.dial("xds:///" + service)
	mustReach(t, cc, unary, before)
	held := make(chan struct{})
	before.SetBehaviour(func(context.Context, testutils.RPC) error {
		<-held
		return testutils.TrailersOnly(status.Error(codes.Unavailable, "moved"))
	})
	ctx := testutils.Context(t)
	done := make(chan reply, 1)
	go func() { done <- callFor(ctx, cc, unary) }()
	if err := before.Wait(ctx, 2); err != nil {
		t.Fatal(err)
	}
	m.serveRoutes(routes("after"), after)
	for id := ""; id != "after"; {
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		id, _ = call(short, cc, bidiStreaming)
		cancel()
		if ctx.Err() != nil {
			t.Fatal("the routes did not move")
		}
	}
	close(held)
	if r := <-done; r.err != nil || backendID(r.header) != "after" {
		t.Errorf("answered by %q: %v", backendID(r.header), r.err)
	}
}

func TestMirrorEndToEnd(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	primary, shadow := testutils.StartBackend(t, "primary"), testutils.StartBackend(t, "shadow")
	route := toCluster("primary")
	route.GetRoute().RequestMirrorPolicies = []*routepb.RouteAction_RequestMirrorPolicy{{Cluster: "shadow"}}
	m.serveRoutes([]*routepb.Route{route}, primary, shadow)
	cc := m.dial("xds:///" + service)
	for i, k := range kinds {
		mustReach(t, cc, k, primary)
		if err := shadow.Wait(testutils.Context(t), i+1); err != nil {
			t.Errorf("%s: %v", k, err)
		}
		if got := shadow.Last().Authority; got != service+"-shadow" {
			t.Errorf("%s: the shadow's authority is %q", k, got)
		}
	}
	if primary.Count() != len(kinds) {
		t.Errorf("the primary got %d RPCs", primary.Count())
	}
}

// TestMirrorUnderLoad: shadows that fail, hang and die do not fail an RPC.
func TestMirrorUnderLoad(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	primary, shadow := testutils.StartBackend(t, "primary"), testutils.StartBackend(t, "shadow")
	route := toCluster("primary")
	policy := &routepb.RouteAction_RequestMirrorPolicy{Cluster: "shadow", RuntimeFraction: &corepb.RuntimeFractionalPercent{
		DefaultValue: &typepb.FractionalPercent{Numerator: 50},
	}}
	route.GetRoute().RequestMirrorPolicies = []*routepb.RouteAction_RequestMirrorPolicy{policy, policy}
	m.serveRoutes([]*routepb.Route{route}, primary, shadow)
	cc := m.dial("xds:///" + service)
	mustReach(t, cc, unary, primary)
	l := startLoad(t, cc)
	ctx := testutils.Context(t)
	for _, step := range []func(){
		func() {},
		func() { shadow.Fail(status.Error(codes.Internal, "broken")) },
		func() { shadow.Fail(nil); shadow.Stop() },
		func() {
			if err := shadow.Restart(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		step()
		n := primary.Count()
		if err := primary.Wait(ctx, n+500); err != nil {
			t.Fatal(err)
		}
	}
	if shadow.Count() == 0 {
		t.Error("the shadow got nothing")
	}
	release := shadow.Hold()
	defer release()
	if err := primary.Wait(ctx, primary.Count()+1000); err != nil {
		t.Fatal(err)
	}
	l.stop(t)
}

func TestClusterHeaderEndToEnd(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	a, b := testutils.StartBackend(t, "a"), testutils.StartBackend(t, "b")
	byHeader := xdsmsg.Route(xdsmsg.Prefix(""), &routepb.RouteAction{ClusterSpecifier: &routepb.RouteAction_ClusterHeader{ClusterHeader: "to"}})
	byHeader.Match.Headers = []*routepb.HeaderMatcher{{Name: "to", HeaderMatchSpecifier: &routepb.HeaderMatcher_PresentMatch{PresentMatch: true}}}
	m.serveRoutes([]*routepb.Route{byHeader, xdsmsg.WeightedRoute("", xdsmsg.Weighted{Cluster: "a", Weight: 1}, xdsmsg.Weighted{Cluster: "b", Weight: 1})}, a, b)
	cc := m.dial("xds:///" + service)
	for _, to := range []*testutils.Backend{a, b} {
		eachKind(t, func(t *testing.T, k kind) {
			ctx := metadata.AppendToOutgoingContext(testutils.Context(t), "to", to.ID())
			if got, err := call(ctx, cc, k, grpc.WaitForReady(true)); err != nil || got != to.ID() {
				t.Errorf("answered by %q, %v, want %q", got, err, to.ID())
			}
		})
	}
	_, err := call(metadata.AppendToOutgoingContext(testutils.Context(t), "to", "c"), cc, unary)
	checkStatus(t, err, codes.Unavailable, `"c"`)
}

// Routes with every action change a few hundred times under load, and no RPC
// fails.
func TestActionsChangeUnderLoad(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	a, b := testutils.StartBackend(t, "a"), testutils.StartBackend(t, "b")
	m.serveRoutes([]*routepb.Route{toCluster("a")}, a, b)
	cc := m.dial("xds:///" + service)
	mustReach(t, cc, unary, a)
	l := startLoad(t, cc)
	ctx := testutils.Context(t)
	for i := range 200 {
		route := toCluster([]string{"a", "b"}[i%2])
		if i%3 == 0 {
			route.GetRoute().RetryPolicy = &routepb.RetryPolicy{RetryOn: "unavailable"}
		}
		if i%4 == 0 {
			route.ResponseHeadersToAdd = []*corepb.HeaderValueOption{header("x", "y")}
		}
		if i%5 == 0 {
			route.GetRoute().RequestMirrorPolicies = []*routepb.RouteAction_RequestMirrorPolicy{{Cluster: []string{"b", "a"}[i%2]}}
		}
		m.Skip()
		m.set(xdsmsg.RouteConfig(service, service, route))
		m.MustWait(ctx, t, testutils.ACKOf(routesURL))
	}
	m.Skip()
	m.set(xdsmsg.RouteConfig(service, service, toCluster("b")))
	l.await(t, b)
	l.stop(t)
}
