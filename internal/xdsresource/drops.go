package xdsresource

import (
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// Million is what Drop.PerMillion is a part of.
const Million = 1_000_000

// Drop is one entry of ClusterLoadAssignment.policy.drop_overloads: a share of
// the RPCs that is to fail at once, to spare the backends.
type Drop struct {
	// Category names the reason.
	Category string
	// PerMillion is from 1 to Million. Entries of 0 are left out.
	PerMillion uint32
}

// drops decodes drop_overloads, in their order. A share of more than all is
// all (gRFC A27).
func (v *validator) drops(at *path, pbs []*endpointpb.ClusterLoadAssignment_Policy_DropOverload) []Drop {
	var drops []Drop
	for i, pb := range pbs {
		at := at.item("drop_overloads", i)
		if pb.GetCategory() == "" {
			v.fault(at.field("category"), "must not be empty")
		}
		perMillion := v.perMillion(at.field("drop_percentage"), pb.GetDropPercentage())
		if perMillion > 0 {
			drops = append(drops, Drop{Category: pb.GetCategory(), PerMillion: perMillion})
		}
	}
	return drops
}

func (v *validator) perMillion(at *path, pb *typepb.FractionalPercent) uint32 {
	var each uint64
	switch pb.GetDenominator() {
	case typepb.FractionalPercent_HUNDRED:
		each = Million / 100
	case typepb.FractionalPercent_TEN_THOUSAND:
		each = Million / 10_000
	case typepb.FractionalPercent_MILLION:
		each = 1
	default:
		v.fault(at.field("denominator"), "unknown denominator %v", pb.GetDenominator())
	}
	return uint32(min(uint64(pb.GetNumerator())*each, Million))
}
