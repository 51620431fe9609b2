package meshroute

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	maglevpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	ringhashpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	wrrlocalitypb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// priorities describes the variants of a service's endpoints: their parameters, and the hosts of each priority.
func priorities(m *Mesh, name string) (list []string) {
	for _, r := range m.Resources() {
		a, ok := r.Message.(*endpointpb.ClusterLoadAssignment)
		if !ok || r.Name != name {
			continue
		}
		byPriority := map[uint32][]string{}
		for _, l := range a.GetEndpoints() {
			for _, e := range l.GetLbEndpoints() {
				byPriority[l.GetPriority()] = append(byPriority[l.GetPriority()], e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
			}
		}
		var texts []string
		for p := range uint32(len(byPriority)) {
			texts = append(texts, strings.Join(byPriority[p], " "))
		}
		list = append(list, strings.TrimSpace(r.Parameters.String()+" "+strings.Join(texts, " | ")))
	}
	return list
}

// nearby is a service with endpoints in two zones, for clients of these and of two nodes.
func nearby() *Service {
	in := func(host, zone string, nodes ...string) Endpoint {
		return Endpoint{Address: host + ":80", Locality: Locality{Zone: zone}, ForZones: []string{zone}, ForNodes: nodes}
	}
	return &Service{Name: "a:80", Endpoints: []Endpoint{in("10.0.0.1", "x", "node-1"), in("10.0.0.2", "x"), in("10.0.0.3", "y", "node-3")}}
}

func TestBuild_EndpointsByPlace(t *testing.T) {
	t.Parallel()
	m := accepted(t, Input{Services: []*Service{nearby()}}, nil)
	policytest.Equal(t, "variants", []string{
		`specificity=0 10.0.0.1 10.0.0.2 10.0.0.3`,
		`specificity=1,xds_zone=x 10.0.0.1 10.0.0.2 | 10.0.0.3`,
		`specificity=1,xds_zone=y 10.0.0.3 | 10.0.0.1 10.0.0.2`,
		`specificity=2,xds_node=node-1 10.0.0.1 | 10.0.0.2 | 10.0.0.3`,
		`specificity=2,xds_node=node-3 10.0.0.3 | 10.0.0.1 10.0.0.2`,
	}, unquoted(priorities(m, "a:80")))
	policytest.Equal(t, "keys", []string{meshpolicy.NodeKey, meshpolicy.ZoneKey}, m.Keys())
	constraints, err := ConstraintsFor(Client{Tags: map[string]string{"zone": "x", "node": "node-9"}}, m.Keys())
	policytest.Equal(t, "error", error(nil), err)
	parameters := func(values map[string]string) dynparam.Parameters {
		p, err := dynparam.NewParameters(values)
		policytest.Equal(t, "error", error(nil), err)
		return p
	}
	for zone, want := range map[string]bool{"x": true, "y": false} {
		got := constraints.For(EndpointsType).Match(parameters(map[string]string{"xds_zone": zone, "specificity": "1"}))
		policytest.Equal(t, "a client of zone x gets the variant of "+zone, want, got)
	}
}

func unquoted(list []string) []string {
	for i := range list {
		list[i] = strings.NewReplacer(`"`, "", "{", "", "}", "", ", ", ",").Replace(list[i])
	}
	return list
}

// With too many nodes there are variants by zone alone; with host names there are those by implementation alone.
func TestBuild_PlacesAreBounded(t *testing.T) {
	t.Parallel()
	large := &Service{Name: "a"}
	for i := range 200 {
		large.Endpoints = append(large.Endpoints, Endpoint{Address: fmt.Sprintf("10.0.1.%d:80", i), ForZones: []string{"x"}, ForNodes: []string{fmt.Sprintf("node-%d", i)}})
	}
	policytest.Equal(t, "keys", []string{meshpolicy.ZoneKey}, mustBuild(t, Input{Services: []*Service{large}}, nil).Keys())
	named := nearby()
	named.Endpoints[0].Address = "example.com:80"
	policytest.Equal(t, "keys", []string{meshpolicy.AddressesKey}, mustBuild(t, Input{Services: []*Service{named}}, nil).Keys())
}

func TestBuild_Aliases(t *testing.T) {
	t.Parallel()
	var list []*Service
	for _, namespace := range []string{"shop", "bank"} {
		s := service("greeter." + namespace + ":8080")
		s.Aliases = []Alias{{Name: "greeter." + namespace}, {Name: "greeter:8080", Namespace: namespace}}
		list = append(list, s)
	}
	m := accepted(t, Input{Services: list, Authority: "mesh"}, nil)
	var got []string
	for _, r := range m.Resources() {
		if l, ok := r.Message.(*listenerpb.Listener); ok {
			got = append(got, l.GetName()[strings.LastIndexByte(l.GetName(), '/')+1:]+" "+r.Parameters.String()+" of "+r.Service)
		}
	}
	slices.Sort(got)
	policytest.Equal(t, "Listeners", []string{
		"greeter.bank  of greeter.bank:8080", "greeter.bank:8080  of greeter.bank:8080",
		"greeter.shop  of greeter.shop:8080", "greeter.shop:8080  of greeter.shop:8080",
		"greeter:8080 specificity=1,xds_namespace=bank of greeter.bank:8080", "greeter:8080 specificity=1,xds_namespace=shop of greeter.shop:8080",
	}, unquoted(got))
	policytest.Equal(t, "keys", []string{meshpolicy.NamespaceKey}, m.Keys())
}

func TestBuild_ExternalNamesAndAddresses(t *testing.T) {
	t.Parallel()
	external := &Service{Name: "db.shop:5432", ExternalName: "db.example.com:5432"}
	dual := service("a")
	dual.Endpoints[0].AdditionalAddresses = []string{"[fd00::1]:80"}
	m := accepted(t, Input{Services: []*Service{external, dual}}, nil)
	var types []string
	for _, r := range m.Resources() {
		if c, ok := r.Message.(*clusterpb.Cluster); ok {
			types = append(types, c.GetName()+" "+c.GetType().String())
		}
		if a, ok := r.Message.(*endpointpb.ClusterLoadAssignment); ok {
			additional := a.GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAdditionalAddresses()
			policytest.Equal(t, "additional address", "fd00::1", additional[0].GetAddress().GetSocketAddress().GetAddress())
		}
	}
	policytest.Equal(t, "Clusters", []string{"a EDS", "db.shop:5432 LOGICAL_DNS"}, types)

	bad := service("a")
	bad.Endpoints[0].AdditionalAddresses, bad.Aliases, bad.ExternalName = []string{"host:80"}, []Alias{{Name: "a/b"}}, "no-port"
	_, err := Build(Input{Services: []*Service{bad}}, nil)
	for _, want := range []string{`"host:80" is not ip:port`, `"a/b" cannot be the name`, `"no-port" is not host:port`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// With a policy that is complete, a request that no rule applies to is refused.
func TestBuild_CompletePolicy(t *testing.T) {
	t.Parallel()
	policies, err := Parse("policies.yaml", []byte(`
metadata: {name: p}
spec: {to: [{targetRef: {kind: MeshService, name: a}, rules: [{matches: [{path: {type: Exact, value: /s/m}}], backendRefs: [{kind: MeshService, name: a}]}]}]}`))
	policytest.Equal(t, "error", error(nil), err)
	complete := *policies[0]
	complete.Complete = true
	for _, p := range []*Policy{policies[0], meshpolicy.New(complete)} {
		m := accepted(t, Input{Services: services("a"), Policies: []*Policy{p}}, nil)
		host := hostFor(t, m.Routes(frontend, "a"))
		merged, _ := m.Merged(frontend, "a")
		policytest.Equal(t, "explained", p.Complete, strings.Contains(merged.String(), "UNIMPLEMENTED"))
		policytest.Equal(t, "number of routes", 2, len(host.Routes))
		_, forwards := host.Routes[1].Action.(*xdsresource.Forward)
		policytest.Equal(t, "other RPCs are forwarded", !p.Complete, forwards)
	}
}

// gRFC A42 has "the weight of the locality multiplied by the weight of the endpoint": clients without A113, given 3 endpoints in one
// zone and 1 in another, weigh the former 3 * 1 and the latter 1 * 1. In one locality all weigh the same to every client.
func TestBuild_OneLocalityForHashPolicies(t *testing.T) {
	t.Parallel()
	policies := func(messages ...proto.Message) *clusterpb.Cluster {
		list := &clusterpb.LoadBalancingPolicy{}
		for _, m := range messages {
			list.Policies = append(list.Policies, &clusterpb.LoadBalancingPolicy_Policy{
				TypedExtensionConfig: &corepb.TypedExtensionConfig{Name: "p", TypedConfig: mustPack(m)},
			})
		}
		return &clusterpb.Cluster{LoadBalancingPolicy: list}
	}
	ring := &ringhashpb.RingHash{HashFunction: ringhashpb.RingHash_XX_HASH}
	given := map[Locality]uint32{{Zone: "b"}: 5}
	for name, test := range map[string]struct {
		cluster *clusterpb.Cluster
		weights map[Locality]uint32
		want    string
	}{
		"round robin":           {nil, nil, `a×3 at 0: 1 1 1, b×1 at 0: 1, b×2 at 1: 2`},
		"ring hash":             {&clusterpb.Cluster{LbPolicy: clusterpb.Cluster_RING_HASH}, nil, `×1 at 0: 1 1 1 1, ×1 at 1: 2`},
		"Maglev":                {&clusterpb.Cluster{LbPolicy: clusterpb.Cluster_MAGLEV}, nil, `×1 at 0: 1 1 1 1, ×1 at 1: 2`},
		"Maglev, as in folders": {policies(&maglevpb.Maglev{}, ring), nil, `×1 at 0: 1 1 1 1, ×1 at 1: 2`},
		"weights are given":     {policies(ring), given, `a×3 at 0: 1 1 1, b×5 at 0: 1, b×5 at 1: 2`},
		"ring hash in each locality": {
			policies(&wrrlocalitypb.WrrLocality{EndpointPickingPolicy: policies(ring).GetLoadBalancingPolicy()}), nil, `a×3 at 0: 1 1 1, b×1 at 0: 1, b×2 at 1: 2`,
		},
	} {
		s := &Service{Name: "s", Cluster: test.cluster, LocalityWeights: test.weights}
		for i, zone := range []string{"a", "b", "a", "a", "b"} {
			e := Endpoint{Address: fmt.Sprintf("10.0.0.%d:80", i), Locality: Locality{Zone: zone}}
			if i == 4 {
				e.Priority, e.Weight = 1, 2
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		for _, r := range accepted(t, Input{Services: []*Service{s}}, nil).Resources() {
			a, ok := r.Message.(*endpointpb.ClusterLoadAssignment)
			if !ok {
				continue
			}
			checkResource(t, r)
			var got []string
			for _, l := range a.GetEndpoints() {
				text := fmt.Sprintf("%s×%d at %d:", l.GetLocality().GetZone(), l.GetLoadBalancingWeight().GetValue(), l.GetPriority())
				for _, e := range l.GetLbEndpoints() {
					text += fmt.Sprintf(" %d", e.GetLoadBalancingWeight().GetValue())
				}
				got = append(got, text)
			}
			policytest.Equal(t, name, test.want, strings.Join(got, ", "))
		}
	}
}
