package xdsresource

import (
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
)

// Million is what Drop.PerMillion is a part of.
const Million = matching.Million

// Drop is one entry of ClusterLoadAssignment.policy.drop_overloads: a share of
// the RPCs that fail at once, to spare the backends.
type Drop struct {
	// Category names the reason.
	Category string
	// PerMillion is from 1 to Million. Entries of 0 are left out.
	PerMillion uint32
}

// drops decodes drop_overloads, in their order. A share above 100% is
// 100% (gRFC A27).
func (v *validator) drops(at *faults.Path, pbs []*endpointpb.ClusterLoadAssignment_Policy_DropOverload) []Drop {
	if !v.atMost(at.Field("drop_overloads"), len(pbs), bounds.Conditions) {
		return nil
	}
	var drops []Drop
	for i, pb := range pbs {
		at := at.Item("drop_overloads", i)
		if pb.GetCategory() == "" {
			v.fault(at.Field("category"), "must not be empty")
		}
		perMillion := v.perMillion(at.Field("drop_percentage"), pb.GetDropPercentage())
		if perMillion > 0 {
			drops = append(drops, Drop{Category: pb.GetCategory(), PerMillion: perMillion})
		}
	}
	return drops
}
