package xdsresource

import (
	subsettingpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random_subsetting/v3"

	"github.com/dynxds/dynxds/internal/faults"
)

// Subsets are the sizes of the random subsets of endpoints that a client uses (gRFC A68). 0: all.
type Subsets struct {
	// OfPriority is for all endpoints of a priority together; OfLocality is for those of each
	// locality, by a RandomSubsetting within a WrrLocality.
	OfPriority, OfLocality uint32
}

// randomSubsetting is gRFC A68. The size is kept apart from the policy of the subset, which
// therefore may be any that a Cluster can have. Of one subset within another the smaller size counts.
func (d policyDecoder) randomSubsetting(at *faults.Path, pb *subsettingpb.RandomSubsetting, depth int) {
	size := pb.GetSubsetSize().GetValue()
	if size == 0 {
		d.fault(at.Field("subset_size"), "must be greater than 0")
	}
	whole := &d.c.Subsets.OfPriority
	if !d.c.AcrossLocalities {
		whole = &d.c.Subsets.OfLocality
	}
	if *whole == 0 || size < *whole {
		*whole = size
	}
	d.firstKnownPolicy(at.Field("child_policy"), pb.GetChildPolicy(), depth+1)
}
