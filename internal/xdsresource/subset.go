package xdsresource

import (
	"cmp"

	subsettingpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random_subsetting/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/overlay"
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

// overlaySubsets changes the size of the subset that the Cluster has, of a priority or of each locality, or
// gives it one of each priority.
func (d clusterDecoder) overlaySubsets(c *Cluster) {
	var received *wrapperspb.UInt32Value
	if size := cmp.Or(c.Subsets.OfLocality, c.Subsets.OfPriority); size > 0 {
		received = wrapperspb.UInt32(size)
	}
	c.Subsets = overlaid(d.validator, &c.Changes, overlay.SubsetSize, received, c.Subsets, func(at *faults.Path, size *wrapperspb.UInt32Value) Subsets {
		switch {
		case size == nil:
			return Subsets{}
		case size.GetValue() == 0:
			d.fault(at, "must be greater than 0")
		case c.Subsets.OfLocality > 0:
			return Subsets{OfLocality: size.GetValue()}
		}
		return Subsets{OfPriority: size.GetValue()}
	})
}
