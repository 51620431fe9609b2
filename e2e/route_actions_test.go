package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mutationpb "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
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

func header(name, value string) *corepb.HeaderValueOption {
	return &corepb.HeaderValueOption{Header: &corepb.HeaderValue{Key: name, Value: value}}
}

// Envoy, RouteConfiguration, VirtualHost, Route and ClusterWeight: edits of all four
// levels, the most specific one first unless most_specific_header_mutations_wins is
// set; every append_action; of requests and of responses, of every kind of RPC.
func TestHeaderEditsEndToEnd(t *testing.T) {
	t.Parallel()
	type options = []*corepb.HeaderValueOption
	edit := func(name, value string, action corepb.HeaderValueOption_HeaderAppendAction) *corepb.HeaderValueOption {
		o := header(name, value)
		o.AppendAction = action
		return o
	}
	const (
		add         = corepb.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
		ifAbsent    = corepb.HeaderValueOption_ADD_IF_ABSENT
		overwrite   = corepb.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		ifOverwrite = corepb.HeaderValueOption_OVERWRITE_IF_EXISTS
	)
	level := func(name string) options {
		return options{edit("all", name, add), edit("one", name, overwrite)}
	}
	for _, mostSpecificWins := range []bool{false, true} {
		xdstest.Parallel(t, fmt.Sprintf("most_specific_header_mutations_wins=%v", mostSpecificWins), func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b")
			route := xdsmsg.WeightedRoute("", xdsmsg.Weighted{Cluster: "b", Weight: 1})
			weight := route.GetRoute().GetWeightedClusters().GetClusters()[0]
			rc := xdsmsg.RouteConfig(service, service, route)
			rc.MostSpecificHeaderMutationsWins = mostSpecificWins
			rc.RequestHeadersToAdd, rc.ResponseHeadersToAdd = level("config"), level("config")
			rc.VirtualHosts[0].RequestHeadersToAdd, rc.VirtualHosts[0].ResponseHeadersToAdd = level("host"), level("host")
			route.RequestHeadersToAdd, route.ResponseHeadersToAdd = level("route"), level("route")
			weight.RequestHeadersToAdd = append(level("weight"), edit("present", "new", ifAbsent), edit("absent", "new", ifAbsent),
				edit("present", "over", ifOverwrite), edit("missing", "over", ifOverwrite),
				edit("grpc-x", "never", overwrite), edit(":path", "never", overwrite), edit("formatted", "%START_TIME%", add))
			weight.ResponseHeadersToAdd = level("weight")
			weight.RequestHeadersToRemove, weight.ResponseHeadersToRemove = []string{"removed"}, []string{testutils.BackendIDHeader}
			m.set(append(clusterOf("b", backend), xdsmsg.DefaultListener(service, service), rc)...)
			cc := m.dial("xds:///" + service)
			all, one := []string{"weight", "route", "host", "config"}, []string{"config"}
			if mostSpecificWins {
				all, one = []string{"config", "host", "route", "weight"}, []string{"weight"}
			}
			eachKind(t, func(t *testing.T, k kind) {
				r := callFor(metadata.AppendToOutgoingContext(testutils.Context(t), "removed", "v", "present", "old"), cc, k)
				xdstest.NoError(t, r.err)
				md := backend.Last().Metadata
				for name, want := range map[string][]string{
					"all": all, "one": one, "removed": nil, "present": {"over"}, "absent": {"new"}, "missing": nil, "grpc-x": nil, "formatted": nil,
				} {
					if got := md[name]; !slices.Equal(got, want) {
						t.Errorf("the backend saw %s: %q, want %q", name, got, want)
					}
				}
				for name, want := range map[string][]string{"all": all, "one": one, testutils.BackendIDHeader: nil} {
					if got := r.header[name]; !slices.Equal(got, want) {
						t.Errorf("the application saw %s: %q, want %q", name, got, want)
					}
				}
			})
		})
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

// RPCs are retried as the route or its virtual host says (gRFC A44).
func TestRetryEndToEnd(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"route", "virtual host"} {
		xdstest.Parallel(t, level, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b")
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
	xdstest.NoError(t, before.Wait(ctx, 2))
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

// Envoy, RequestMirrorPolicy: several at once; those of the virtual host if the route
// has none; a copy's authority, its fraction and its headers.
func TestFormsOfMirrorPoliciesEndToEnd(t *testing.T) {
	t.Parallel()
	type policies = []*routepb.RouteAction_RequestMirrorPolicy
	of := func(percent uint32, change func(*routepb.RouteAction_RequestMirrorPolicy)) *routepb.RouteAction_RequestMirrorPolicy {
		p := &routepb.RouteAction_RequestMirrorPolicy{Cluster: "shadow", RuntimeFraction: &corepb.RuntimeFractionalPercent{
			DefaultValue: &typepb.FractionalPercent{Numerator: percent},
		}}
		change(p)
		return p
	}
	asIs := func(*routepb.RouteAction_RequestMirrorPolicy) {}
	for _, tc := range []struct {
		name        string
		host, route policies
		authorities []string // of the copies, in alphabetical order
	}{
		{"of the virtual host", policies{of(100, asIs)}, nil, []string{service + "-shadow"}},
		{"of the route in place of the virtual host", policies{of(100, asIs)}, policies{
			of(100, func(p *routepb.RouteAction_RequestMirrorPolicy) { p.DisableShadowHostSuffixAppend = true }),
		}, []string{service}},
		{"of the route, with defaults", nil, policies{{Cluster: "shadow"}}, []string{service + "-shadow"}},
		{"none of the RPCs", nil, policies{of(0, asIs)}, nil},
		{"named by a header", nil, policies{of(100, func(p *routepb.RouteAction_RequestMirrorPolicy) {
			p.Cluster, p.ClusterHeader = "", "mirror-to"
		})}, []string{service + "-shadow"}},
		{"several, one of another name", nil, policies{of(100, asIs), of(0, asIs), of(100, func(p *routepb.RouteAction_RequestMirrorPolicy) {
			p.HostRewriteLiteral = "another"
			p.RequestHeadersMutations = []*mutationpb.HeaderMutation{{Action: &mutationpb.HeaderMutation_Append{Append: header("copy", "yes")}}}
		})}, []string{"another", service + "-shadow"}},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m := newMesh(t, "trusted_xds_server")
			primary, shadow := testutils.StartBackend(t, "primary"), testutils.StartBackend(t, "shadow")
			var mu sync.Mutex
			var copies []testutils.RPC
			shadow.SetBehaviour(func(_ context.Context, rpc testutils.RPC) error {
				mu.Lock()
				defer mu.Unlock()
				copies = append(copies, rpc)
				return nil
			})
			route := toCluster("primary")
			route.GetRoute().RequestMirrorPolicies = tc.route
			// A header names only clusters that the virtual host has anyway.
			known := xdsmsg.PathRoute("/never", "shadow")
			rc := xdsmsg.RouteConfig(service, service, known, route)
			rc.VirtualHosts[0].RequestMirrorPolicies = tc.host
			m.set(append(append(clusterOf("primary", primary), clusterOf("shadow", shadow)...), xdsmsg.DefaultListener(service, service), rc)...)
			cc := m.dial("xds:///" + service)
			eachKind(t, func(t *testing.T, k kind) {
				before := shadow.Count()
				ctx := metadata.AppendToOutgoingContext(testutils.Context(t), "mirror-to", "shadow")
				if r := callFor(ctx, cc, k); r.err != nil || backendID(r.header) != "primary" {
					t.Fatalf("answered by %q: %v", backendID(r.header), r.err)
				}
				xdstest.NoError(t, shadow.Wait(ctx, before+len(tc.authorities)))
				mu.Lock()
				defer mu.Unlock()
				var got []string
				for _, rpc := range copies {
					got = append(got, rpc.Authority)
					if marked := len(rpc.Metadata["copy"]) > 0; marked != (rpc.Authority == "another") {
						t.Errorf("the copy to %s has the header of that policy: %v", rpc.Authority, marked)
					}
				}
				copies = nil
				slices.Sort(got)
				if !slices.Equal(got, tc.authorities) {
					t.Errorf("copies to %q, want %q", got, tc.authorities)
				}
			})
			if n := primary.Count(); n != len(kinds) {
				t.Errorf("the primary got %d RPCs", n)
			}
		})
	}
}

// Shadows that fail, hang and die do not fail an RPC.
func TestMirrorUnderLoad(t *testing.T) {
	inOneWay(t, "the shadow changes, and no resource")
	overLinks(t, func(t *testing.T) {
		m := newMesh(t)
		primary, shadow := testutils.StartBackend(t, "primary"), testutils.StartBackend(t, "shadow")
		route := toCluster("primary")
		policy := &routepb.RouteAction_RequestMirrorPolicy{Cluster: "shadow", RuntimeFraction: &corepb.RuntimeFractionalPercent{
			DefaultValue: &typepb.FractionalPercent{Numerator: 50},
		}}
		route.GetRoute().RequestMirrorPolicies = []*routepb.RouteAction_RequestMirrorPolicy{policy, policy}
		m.serveRoutes([]*routepb.Route{route}, primary, shadow)
		cc := m.dial("xds:///" + service)
		l := loadOn(t, cc, primary)
		ctx := testutils.Context(t)
		for _, step := range []func(){
			func() {},
			func() { shadow.Fail(status.Error(codes.Internal, "broken")) },
			func() { shadow.Fail(nil); shadow.Stop() },
			func() {
				xdstest.NoError(t, shadow.Restart())
			},
		} {
			step()
			n := primary.Count()
			xdstest.NoError(t, primary.Wait(ctx, n+500))
		}
		if shadow.Count() == 0 {
			t.Error("the shadow got nothing")
		}
		release := xdstest.Hold(shadow)
		defer release()
		xdstest.NoError(t, primary.Wait(ctx, primary.Count()+1000))
		l.stop(t)
	})
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
