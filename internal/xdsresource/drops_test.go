package xdsresource

import (
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type dropPB = endpointpb.ClusterLoadAssignment_Policy_DropOverload

func withDrops(drops ...*dropPB) *endpointpb.ClusterLoadAssignment {
	a := assignment()
	a.Policy = &endpointpb.ClusterLoadAssignment_Policy{DropOverloads: drops}
	return a
}

func drop(category string, numerator uint32, denominator typepb.FractionalPercent_DenominatorType) *dropPB {
	return &dropPB{Category: category, DropPercentage: &typepb.FractionalPercent{Numerator: numerator, Denominator: denominator}}
}

const (
	hundred     = typepb.FractionalPercent_HUNDRED
	tenThousand = typepb.FractionalPercent_TEN_THOUSAND
	perMillion  = typepb.FractionalPercent_MILLION
)

// gRFC A27, "ClusterLoadAssignment Proto".
func TestDrops(t *testing.T) {
	t.Parallel()
	checkEach(t, "Drops", func(t *testing.T, resource *endpointpb.ClusterLoadAssignment) []Drop {
		return mustDecode[Endpoints](t, EndpointsType, resource).Drops
	}, rows[*endpointpb.ClusterLoadAssignment, []Drop]{
		{"no policy", assignment(), nil},
		{"every denominator, in order", withDrops(drop("c", 7, hundred), drop("a", 7, tenThousand), drop("b", 7, perMillion)),
			[]Drop{{"c", 70_000}, {"a", 700}, {"b", 7}}},
		{"more than all", withDrops(drop("x", 101, hundred), drop("y", 1<<32-1, hundred)), []Drop{{"x", Million}, {"y", Million}}},
		{"nothing", withDrops(drop("x", 0, hundred), &dropPB{Category: "y"}), nil},
	})
	checkFaults(t, EndpointsType, withDrops(drop("", 1, perMillion), drop("x", 1, 9)), []fault{
		{"policy.drop_overloads[0].category", "must not be empty"},
		{"policy.drop_overloads[1].drop_percentage.denominator", "is the unknown value 9"},
	})
}

// gRFC A32: only max_requests of the first threshold of priority DEFAULT.
func TestMaxRequests(t *testing.T) {
	t.Parallel()
	type threshold = clusterpb.CircuitBreakers_Thresholds
	of := func(priority corepb.RoutingPriority, limit uint32) *threshold {
		return &threshold{Priority: priority, MaxRequests: wrapperspb.UInt32(limit)}
	}
	checkEach(t, "MaxRequests", func(t *testing.T, thresholds []*threshold) uint32 {
		c := edsCluster(func(c *clusterpb.Cluster) {
			c.CircuitBreakers = &clusterpb.CircuitBreakers{Thresholds: thresholds}
		})
		return mustDecode[Cluster](t, ClusterType, c).MaxRequests
	}, rows[[]*threshold, uint32]{
		{"no thresholds", nil, 1024},
		{"a limit", []*threshold{of(corepb.RoutingPriority_DEFAULT, 5)}, 5},
		{"none may pass", []*threshold{of(corepb.RoutingPriority_DEFAULT, 0)}, 0},
		{"priority HIGH only", []*threshold{of(corepb.RoutingPriority_HIGH, 5)}, 1024},
		{"HIGH before DEFAULT", []*threshold{of(corepb.RoutingPriority_HIGH, 5), of(corepb.RoutingPriority_DEFAULT, 6)}, 6},
		{"the first of two", []*threshold{of(corepb.RoutingPriority_DEFAULT, 5), of(corepb.RoutingPriority_DEFAULT, 6)}, 5},
		{"the first says nothing", []*threshold{{}, of(corepb.RoutingPriority_DEFAULT, 6)}, 1024},
	})
}
