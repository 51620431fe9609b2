package xdsresource

import (
	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	roundrobinpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
)

const (
	roundRobinTypeURL  = "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"
	wrrLocalityTypeURL = "type.googleapis.com/envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality"
)

// maxLBPolicyDepth bounds policies within policies (gRFC A52).
const maxLBPolicyDepth = 16

const roundRobin = "round_robin"

// lbPolicy decodes the policy of a cluster: load_balancing_policy, or, if that
// is not set, lb_policy (gRFC A52).
func (v *validator) lbPolicy(pb *clusterpb.Cluster, c *Cluster) {
	if policy := pb.GetLoadBalancingPolicy(); policy != nil {
		c.AcrossLocalities = true
		v.firstKnownPolicy((*path)(nil).field("load_balancing_policy"), policy, 1, c)
		return
	}
	if pb.GetLbPolicy() != clusterpb.Cluster_ROUND_ROBIN {
		v.fault((*path)(nil).field("lb_policy"), "unknown load balancing policy %v; this client knows ROUND_ROBIN", pb.GetLbPolicy())
		return
	}
	c.LBPolicy = roundRobin
}

// firstKnownPolicy takes the first entry of a known type. If that is at fault,
// the entries behind it do not help.
func (v *validator) firstKnownPolicy(at *path, pb *clusterpb.LoadBalancingPolicy, depth int, c *Cluster) {
	if depth > maxLBPolicyDepth {
		v.fault(at, "has more than %d policies within each other", maxLBPolicyDepth)
		return
	}
	for i, entry := range pb.GetPolicies() {
		at := at.item("policies", i).field("typed_extension_config").field("typed_config")
		config := entry.GetTypedExtensionConfig().GetTypedConfig()
		switch config.GetTypeUrl() {
		case roundRobinTypeURL:
			v.unmarshal(at, config, roundRobinTypeURL, new(roundrobinpb.RoundRobin))
			c.LBPolicy = roundRobin
			return
		case wrrLocalityTypeURL:
			wrr := new(wrrpb.WrrLocality)
			if v.unmarshal(at, config, wrrLocalityTypeURL, wrr) {
				c.AcrossLocalities = false
				v.firstKnownPolicy(at.field("endpoint_picking_policy"), wrr.GetEndpointPickingPolicy(), depth+1, c)
			}
			return
		}
	}
	v.fault(at.field("policies"), "no known load balancing policy among %s; this client knows RoundRobin, also within WrrLocality", policyTypes(pb))
}

// policyTypes lists the types of the entries for a message.
func policyTypes(pb *clusterpb.LoadBalancingPolicy) string {
	list := "["
	for i, entry := range pb.GetPolicies() {
		if i == maxListed {
			list += " …"
			break
		}
		if i > 0 {
			list += " "
		}
		list += quote(entry.GetTypedExtensionConfig().GetTypedConfig().GetTypeUrl())
	}
	return list + "]"
}

// maxListed bounds lists of values in messages.
const maxListed = 5
