package meshroute

import (
	"fmt"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	maglevpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	ringhashpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	wrrlocalitypb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// With too many nodes there are variants by zone alone.
func TestBuild_PlacesAreBounded(t *testing.T) {
	t.Parallel()
	large := &Service{Name: "a"}
	for i := range 200 {
		large.Endpoints = append(large.Endpoints, Endpoint{Address: fmt.Sprintf("10.0.1.%d:80", i), ForZones: []string{"x"}, ForNodes: []string{fmt.Sprintf("node-%d", i)}})
	}
	xdstest.Equal(t, "keys", []string{meshpolicy.ZoneKey}, mustBuild(t, Input{Services: []*Service{large}}, nil).Keys())
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
			xdstest.Equal(t, name, test.want, strings.Join(got, ", "))
		}
	}
}
