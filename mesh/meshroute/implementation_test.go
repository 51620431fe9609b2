package meshroute

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

var implementations = map[Implementation]string{Dynxds: "dynxds", GRPCGo: "gRPC-Go", OtherGRPC: "other gRPC", Envoy: "Envoy"}

// The node's features and user agent determine the implementation; its metadata does not.
func TestImplementationOfANode(t *testing.T) {
	t.Parallel()
	parsed, err := bootstrap.Parse("test", []byte(`{"xds_servers": [{"server_uri": "a:1", "channel_creds": [{"type": "insecure"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	lies := &structpb.Struct{Fields: map[string]*structpb.Value{meshpolicy.RoutesKey: structpb.NewStringValue("all"), meshpolicy.AddressesKey: structpb.NewStringValue("all")}}
	for _, test := range []struct {
		node              *corepb.Node
		want              Implementation
		routes, addresses string
	}{
		{parsed.Node, Dynxds, "", ""},
		{&corepb.Node{UserAgentName: "gRPC Go", Metadata: lies}, GRPCGo, "grpc", ""},
		{&corepb.Node{UserAgentName: "gRPC Node Pure JS", Metadata: lies}, dialect.GRPCJS, "grpc", "ip"},
		{&corepb.Node{UserAgentName: "envoy"}, Envoy, "", "ip"},
		{nil, OtherGRPC, "grpc", "ip"},
	} {
		c := ClientFromNode(test.node)
		if c.Implementation != test.want || c.Tag(meshpolicy.RoutesKey) != test.routes || c.Tag(meshpolicy.AddressesKey) != test.addresses {
			t.Errorf("%v is %v with routes %q and addresses %q, want %+v", test.node, implementations[c.Implementation], c.Tag(meshpolicy.RoutesKey), c.Tag(meshpolicy.AddressesKey), test)
		}
	}
}

// Clients that would reject or misread a rule get routes without it: matches that no RPC
// meets are left out, conditions that every RPC meets are dropped, and redirects lead to a
// Cluster without endpoints.
func TestOnlyClientsThatTakeThemGetRoutesBeyondGRPC(t *testing.T) {
	t.Parallel()
	policies := policytest.Parse(t, "f", policytest.Text(`
    - {matches: [{queryParams: [{name: q, value: x}], path: {exact: /p.S/Query}}], backendRefs: [{kind: MeshService, name: other}]}
    - {matches: [{methods: [GET, POST], path: {exact: /p.S/Post}}], backendRefs: [{kind: MeshService, name: other}]}
    - {matches: [{methods: [GET], path: {exact: /p.S/Get}}], backendRefs: [{kind: MeshService, name: other}]}
    - {matches: [{path: {exact: /p.S/Moved}}], filters: [{requestRedirect: {hostname: h}}]}
`))
	for _, authority := range []string{"", "a"} {
		m := accepted(t, Input{Policies: policies, Services: services("s", "other"), Authority: authority}, nil)
		policytest.Equal(t, "keys", []string{meshpolicy.RoutesKey}, m.Keys())
		dead := m.naming.resource(ClusterType, "s;redirects-are-not-followed")
		all := []string{"/p.S/Query other", "/p.S/Post other", "/p.S/Get other", "/p.S/Moved redirect", " s"}
		few := []string{"/p.S/Post other", "/p.S/Moved " + dead, " s"}
		for implementation, want := range map[Implementation][]string{Dynxds: all, Envoy: all, GRPCGo: few, OtherGRPC: few} {
			c := Client{Implementation: implementation}
			got := choose(t, c, m.Keys(), routesOf(m, "s"))
			if plain := m.Routes(c, "s"); plain != got {
				t.Errorf("%s gets %v by constraints, %v without", implementations[implementation], got.Parameters, plain.Parameters)
			}
			var routes []string
			conditions := 0
			for _, r := range got.Message.(*routepb.RouteConfiguration).VirtualHosts[0].Routes {
				to := r.GetRoute().GetCluster()
				for _, name := range []string{"s", "other"} {
					if to == m.naming.resource(ClusterType, name) {
						to = name
					}
				}
				if r.GetRedirect() != nil {
					to = "redirect"
				}
				routes = append(routes, r.GetMatch().GetPath()+" "+to)
				conditions += len(r.GetMatch().GetHeaders()) + len(r.GetMatch().GetQueryParameters())
			}
			slices.Sort(routes)
			policytest.Equal(t, "routes of "+implementations[implementation], slices.Sorted(slices.Values(want)), routes)
			if simple := len(want) == len(few); simple != (conditions == 0) {
				t.Errorf("the routes of %s have %d conditions beside the path", implementations[implementation], conditions)
			}
		}
		empty := slices.ContainsFunc(m.Resources(), func(r *Resource) bool {
			return r.TypeURL == EndpointsType && r.Name == m.naming.resource(EndpointsType, "s;redirects-are-not-followed") &&
				len(r.Message.(*endpointpb.ClusterLoadAssignment).GetEndpoints()) == 0
		})
		if !empty {
			t.Error("there is no assignment without endpoints for redirects")
		}
	}
}

// Policies that every client supports do not create variants.
func TestRoutesOfGRPCAreForEveryClient(t *testing.T) {
	t.Parallel()
	policies := policytest.Parse(t, "f", policytest.Text(`
    - {matches: [{headers: [{name: h, type: Present}], path: {exact: /p.S/M}}], filters: [{requestHeaderModifier: {remove: [a]}}]}
`))
	m := accepted(t, Input{Policies: policies, Services: services("s")}, nil)
	if len(m.Keys()) > 0 || len(routesOf(m, "s")) != 1 {
		t.Errorf("the keys are %v", m.Keys())
	}
}

// Conditions on headers are in the form that the oldest clients know: C-core 1.51
// rejects a whole RouteConfiguration for one string_match.
func TestHeaderConditionsHaveTheOldestForm(t *testing.T) {
	t.Parallel()
	policies := policytest.Parse(t, "f", policytest.Text(`
    - matches: [{headers: [{name: a, value: x}, {name: b, type: Prefix, value: x}, {name: c, type: RegularExpression, value: x+}, {name: d, type: Present}, {name: e, type: Absent}]}]
`))
	m := mustBuild(t, Input{Policies: policies, Services: services("s")}, nil)
	headers := m.Routes(Client{}, "s").Message.(*routepb.RouteConfiguration).VirtualHosts[0].Routes[0].Match.Headers
	var got []string
	for _, h := range headers {
		got = append(got, fmt.Sprintf("%s %T", h.Name, h.HeaderMatchSpecifier))
	}
	policytest.Equal(t, "conditions", []string{
		"a *routev3.HeaderMatcher_ExactMatch", "b *routev3.HeaderMatcher_PrefixMatch", "c *routev3.HeaderMatcher_SafeRegexMatch",
		"d *routev3.HeaderMatcher_PresentMatch", "e *routev3.HeaderMatcher_PresentMatch",
	}, got)
}

// Clients that reject host names get the other endpoints, if any.
func TestHostNamesAreForClientsThatResolveThem(t *testing.T) {
	t.Parallel()
	s := &Service{Name: "s", Source: Source{File: "f", Line: 1}, Endpoints: []Endpoint{
		{Address: "10.0.0.1:80", Tags: map[string]string{"v": "1"}}, {Address: "[::1]:80"}, {Address: "host:80", Priority: 1, Tags: map[string]string{"v": "2"}},
	}}
	to := func(v string) meshpolicy.BackendRef {
		return meshpolicy.BackendRef{Name: "s", Tags: map[string]string{"v": v}, Weight: 1}
	}
	split := policytest.New("p", TargetRef{}, policytest.To("s", meshpolicy.Rule{BackendRefs: []meshpolicy.BackendRef{to("1"), to("2")}}))
	m := accepted(t, Input{Services: []*Service{s}, Policies: []*Policy{split}}, nil)
	policytest.Equal(t, "keys", []string{meshpolicy.AddressesKey}, m.Keys())
	variants := make(map[string][]*Resource)
	for _, r := range m.Resources() {
		if r.TypeURL == EndpointsType {
			variants[r.Name] = append(variants[r.Name], r)
		}
	}
	all := map[string]string{"s": "10.0.0.1 ::1 host ", "s;v=1": "10.0.0.1 ", "s;v=2": "host "}
	ips := map[string]string{"s": "10.0.0.1 ::1 ", "s;v=1": "10.0.0.1 ", "s;v=2": ""}
	for implementation, want := range map[Implementation]map[string]string{Dynxds: all, GRPCGo: all, OtherGRPC: ips, Envoy: ips} {
		got := make(map[string]string)
		for name, list := range variants {
			got[name] = ""
			for _, locality := range choose(t, Client{Implementation: implementation}, m.Keys(), list).Message.(*endpointpb.ClusterLoadAssignment).GetEndpoints() {
				for _, e := range locality.GetLbEndpoints() {
					got[name] += e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress() + " "
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s gets %v, want %v", implementations[implementation], got, want)
		}
	}
	// Clients that subscribe without constraints are those of dynxds.
	if choice := (dynparam.Constraints{}).Choose([]dynparam.Parameters{variants["s"][0].Parameters, variants["s"][1].Parameters}); choice.Index != 0 {
		t.Errorf("without constraints a client gets %v", variants["s"][choice.Index].Parameters)
	}
}
