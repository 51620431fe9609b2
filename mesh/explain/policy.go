package explain

import (
	"cmp"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	wrrpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// ownPolicies are dynxds's load-balancing policies by their names, for a TypedStruct (gRFC A52).
var ownPolicies = map[string]*dialect.Feature{
	xdsresource.PolicyMaglev:    dialect.Maglev,
	xdsresource.PolicyRandom:    dialect.Random,
	xdsresource.PolicySlowStart: dialect.SlowStart,
}

// rejectsPolicy reports whether the client rejects a Cluster for its lb_policy. Of clients that prefer
// load_balancing_policy, only gRPC-Go looks at both.
func (s implementation) rejectsPolicy(c *clusterpb.Cluster) bool {
	if c.GetLoadBalancingPolicy() != nil && s.Implementation != dialect.GRPCGo {
		return false
	}
	switch c.GetLbPolicy() {
	case clusterpb.Cluster_RANDOM, clusterpb.Cluster_MAGLEV:
		return dialect.OtherPolicies.On(s.Implementation) == dialect.Rejects
	case clusterpb.Cluster_LEAST_REQUEST:
		return dialect.LeastRequest.On(s.Implementation) != dialect.Obeys
	default:
		return false
	}
}

// cluster returns a Cluster without what the client ignores of its policies, raw itself if that is nothing, and the
// fields that it ignores.
func (s implementation) cluster(raw *anypb.Any) (*anypb.Any, []IgnoredField) {
	if s.Implementation == dialect.Dynxds {
		return raw, nil
	}
	c, r := read(raw, new(clusterpb.Cluster)), policyReader{implementation: s}
	if list := c.GetLoadBalancingPolicy(); list != nil {
		r.list(faults.Field("load_balancing_policy"), list, 1)
	} else {
		r.clearSlowStart(faults.Field("round_robin_lb_config"), c.GetRoundRobinLbConfig())
		r.clearSlowStart(faults.Field("least_request_lb_config"), c.GetLeastRequestLbConfig())
	}
	if !r.changed {
		return raw, nil
	}
	changed, err := anypb.New(c)
	if err != nil {
		return raw, nil // impossible: the Cluster has been unmarshaled
	}
	return changed, r.ignored
}

// policyReader takes out of policies what a client does not know.
type policyReader struct {
	implementation
	changed bool
	ignored []IgnoredField
}

// maxPolicyDepth bounds policies within policies (gRFC A52).
const maxPolicyDepth = 16

func (r *policyReader) list(at *faults.Path, list *clusterpb.LoadBalancingPolicy, depth int) {
	if depth > maxPolicyDepth {
		return
	}
	for i, entry := range list.GetPolicies() {
		if config := entry.GetTypedExtensionConfig().GetTypedConfig(); config != nil {
			r.entry(at.Item("policies", i).Field("typed_extension_config").Field("typed_config"), config, depth)
		}
	}
}

// entry makes the type of a policy that the client does not have unknown, so that the next one is used.
func (r *policyReader) entry(at *faults.Path, config *anypb.Any, depth int) {
	name := typeurl.Name(config.GetTypeUrl())
	if of, _, err := httpfilter.TypedStruct(config); err == nil && of != "" {
		name = typeurl.Name(of)
	}
	if f := cmp.Or(dialect.Policy(name), ownPolicies[name]); f != nil && f.On(r.Implementation) != dialect.Obeys {
		config.TypeUrl, r.changed = typeurl.Name(config.GetTypeUrl()), true
		return
	}
	m, err := config.UnmarshalNew()
	if err != nil {
		return // another client may know it
	}
	if m, ok := m.(*wrrpb.WrrLocality); ok {
		r.list(at.Field("endpoint_picking_policy"), m.GetEndpointPickingPolicy(), depth+1)
	}
	r.clearSlowStart(at, m)
	if !r.changed {
		return
	}
	if value, err := proto.Marshal(m); err == nil {
		config.Value = value
	}
}

// clearSlowStart removes the field slow_start_config of a message, if it has one and the client ignores it.
func (r *policyReader) clearSlowStart(at *faults.Path, m proto.Message) {
	field := m.ProtoReflect().Descriptor().Fields().ByName(dialect.SlowStartField)
	if field == nil || dialect.SlowStart.On(r.Implementation) == dialect.Obeys || !m.ProtoReflect().Has(field) {
		return
	}
	m.ProtoReflect().Clear(field)
	r.changed = true
	r.ignored = append(r.ignored, IgnoredField{
		Path: at.Field(string(field.Name())).String(), Reason: r.about(dialect.SlowStart), Severity: xdsclient.SeverityInfo.String(), Places: 1,
	})
}
