package explain

import (
	"encoding/json"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

var received = time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)

// held returns a resource that a client has in use.
func held(m proto.Message) *Resource {
	a := xdsmsg.Any(m)
	r := &Resource{TypeURL: a.GetTypeUrl(), Raw: a, ResourceStatus: ResourceStatus{State: "ACKED", Version: "7", Server: "cp:443", Updated: received}}
	switch m := m.(type) {
	case *listenerpb.Listener:
		r.Name = m.GetName()
	case *routepb.RouteConfiguration:
		r.Name = m.GetName()
	case *clusterpb.Cluster:
		r.Name = m.GetName()
	case *endpointpb.ClusterLoadAssignment:
		r.Name = m.GetClusterName()
	}
	return r
}

// sourceOf returns the source of a client of dynxds that holds these messages.
func sourceOf(messages ...proto.Message) *Source {
	s := &Source{Client: Client{Source: "a test", Name: "dynxds", Version: "0.1.0", NodeID: "n"}}
	for _, m := range messages {
		s.Resources = append(s.Resources, held(m))
	}
	return s
}

const method = "/pkg.Service/Method"

func mustExplain(t *testing.T, s *Source, request Request) *Explanation {
	t.Helper()
	if request.Method == "" {
		request.Method = method
	}
	if request.Target == "" {
		request.Target = "xds:///backend"
	}
	e, err := Explain(s, request)
	xdstest.NoError(t, err)
	return e
}

// header is a condition on one value of a header.
func header(name, value string) *routepb.HeaderMatcher {
	return &routepb.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routepb.HeaderMatcher_StringMatch{
		StringMatch: &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: value}},
	}}
}

func fraction(percent uint32) *corepb.RuntimeFractionalPercent {
	return &corepb.RuntimeFractionalPercent{DefaultValue: &typepb.FractionalPercent{Numerator: percent}}
}

func places(parts ...string) *corepb.Metadata {
	m := make(map[string]string)
	for i := 0; i < len(parts); i += 2 {
		m[parts[i]] = parts[i+1]
	}
	return provenance.Metadata(m)
}

func fault(percent uint32) *faultpb.HTTPFault {
	return &faultpb.HTTPFault{Abort: &faultpb.FaultAbort{
		ErrorType:  &faultpb.FaultAbort_GrpcStatus{GrpcStatus: 14},
		Percentage: &typepb.FractionalPercent{Numerator: percent},
	}}
}

// shop is a mesh with something of everything.
func shop() *Source {
	listener := xdsmsg.DefaultListener("backend", "routes", xdsmsg.Filter("fault", fault(1)))
	canary := xdsmsg.Route(&routepb.RouteMatch{
		PathSpecifier: &routepb.RouteMatch_Prefix{Prefix: "/pkg.Service/"}, RuntimeFraction: fraction(30),
	}, xdsmsg.ToCluster("canary"))
	canary.Name, canary.Metadata = "canary", places(provenance.Matches, "owner.yaml:12", provenance.BackendRefs, "consumer.yaml:5")
	canary.TypedPerFilterConfig = map[string]*anypb.Any{"fault": xdsmsg.Any(fault(50))}
	main := xdsmsg.Route(&routepb.RouteMatch{
		PathSpecifier: &routepb.RouteMatch_Path{Path: method}, Headers: []*routepb.HeaderMatcher{header("x-user", "7")},
	}, &routepb.RouteAction{
		ClusterSpecifier: &routepb.RouteAction_WeightedClusters{WeightedClusters: &routepb.WeightedCluster{Clusters: []*routepb.WeightedCluster_ClusterWeight{
			{Name: "v1", Weight: wrapperspb.UInt32(3)},
			{Name: "all", Weight: wrapperspb.UInt32(1), TypedPerFilterConfig: map[string]*anypb.Any{"fault": xdsmsg.Any(&routepb.FilterConfig{Disabled: true})}},
		}}},
		MaxStreamDuration: &routepb.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(5 * time.Second)},
		RetryPolicy:       &routepb.RetryPolicy{RetryOn: "unavailable,cancelled,reset", NumRetries: wrapperspb.UInt32(2), PerTryTimeout: durationpb.New(time.Second)},
		HashPolicy: []*routepb.RouteAction_HashPolicy{{PolicySpecifier: &routepb.RouteAction_HashPolicy_Header_{
			Header: &routepb.RouteAction_HashPolicy_Header{HeaderName: "x-user"},
		}}},
		PrefixRewrite:         "/other.Service/Method",
		RequestMirrorPolicies: []*routepb.RouteAction_RequestMirrorPolicy{{Cluster: "shadow", RuntimeFraction: fraction(10)}},
	})
	main.RequestHeadersToAdd = []*corepb.HeaderValueOption{{Header: &corepb.HeaderValue{Key: "x-env", Value: "dev"}}}
	main.RequestHeadersToRemove = []string{"x-secret"}
	main.Metadata = places(provenance.Matches, "owner.yaml:20", provenance.Filters, "owner.yaml:22", provenance.BackendRefs, "owner.yaml:30")
	routes := xdsmsg.RouteConfigOf("routes",
		xdsmsg.VirtualHost("other", []string{"other.example"}, xdsmsg.PrefixRoute("/", "v1")),
		xdsmsg.VirtualHost("shop", []string{"*"},
			xdsmsg.PathRoute("/pkg.Service/Another", "v1"),
			xdsmsg.Route(&routepb.RouteMatch{
				PathSpecifier: &routepb.RouteMatch_Prefix{Prefix: ""}, Headers: []*routepb.HeaderMatcher{header("x-user", "8"), header("x-b", "1")},
			}, xdsmsg.ToCluster("v1")),
			canary, main, xdsmsg.PrefixRoute("/", "v1"), xdsmsg.PrefixRoute("/pkg", "v1")))
	v1 := xdsmsg.EDSCluster("v1", "v1-endpoints")
	v1.Metadata, v1.ConnectTimeout = places(provenance.Service, "services.yaml:3"), durationpb.New(time.Second)
	shadow := held(xdsmsg.EDSCluster("shadow", ""))
	shadow.Raw, shadow.State, shadow.Version, shadow.Error = nil, "DOES_NOT_EXIST", "", "it has been deleted"
	stale := held(v1)
	stale.State, stale.Error, stale.ErrorVersion, stale.ErrorTime = "NACKED", "lb_policy: unknown", "8", received.Add(time.Minute)
	s := sourceOf(listener, routes, xdsmsg.EDSCluster("canary", ""), xdsmsg.AggregateCluster("all", "canary", "v1"),
		xdsmsg.SimpleEndpoints("canary"),
		xdsmsg.Endpoints("v1-endpoints",
			xdsmsg.Locality{Zone: "a", Priority: 0, Weight: 1, Endpoints: []xdsmsg.Endpoint{{Addr: "10.0.0.1:80", Health: corepb.HealthStatus_UNHEALTHY}}},
			xdsmsg.Locality{Zone: "b", Priority: 1, Weight: 3, Endpoints: []xdsmsg.Endpoint{{Addr: "10.0.0.2:80", Weight: 2}, {Addr: "10.0.0.3:80", Health: corepb.HealthStatus_DRAINING}}},
			xdsmsg.Locality{Zone: "c", Priority: 1, Weight: 1, Endpoints: []xdsmsg.Endpoint{{Addr: "10.0.0.4:80", Health: corepb.HealthStatus_HEALTHY}}}))
	s.Resources = append(s.Resources, shadow, stale)
	s.State = &livestate.State{Servers: []livestate.Server{{URI: "cp:443", Error: "connection refused"}}}
	return s
}

func TestShop(t *testing.T) {
	t.Parallel()
	e := mustExplain(t, shop(), Request{Headers: map[string][]string{"X-User": {"7"}}})
	golden.Check(t, "testdata/shop.txt", e.Text())
	text, err := json.MarshalIndent(e, "", "  ")
	xdstest.NoError(t, err)
	golden.Check(t, "testdata/shop.json", string(text)+"\n")
}
