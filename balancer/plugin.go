package balancer

import (
	"google.golang.org/grpc/attributes"
	grpcbalancer "google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// pluginPolicy serves the cluster of a cluster specifier plugin. It runs a policy of gRPC's registry whose children are of the
// policy TargetPolicy: it has no endpoints, but the clusters of the channel, which the policy names.
type pluginPolicy struct {
	*leaf.Policy
	cluster, policy string // names
}

func isPlugin(s *ClusterState) bool {
	return s.Cluster != nil && s.Cluster.Kind == xdsresource.ClusterPlugin
}

func (c *lazyCluster) newPlugin(config *ClusterState, changed func()) tree.Configured[*ClusterState] {
	policy := config.Cluster.LBPolicy
	return &pluginPolicy{leaf.NewForPlugin(c.root.env, policy, attributes.New(rootKey{}, c.root), changed), c.name, policy}
}

// Update implements tree.Configured.
func (p *pluginPolicy) Update(s *ClusterState) {
	if isPlugin(s) {
		p.Policy.Update(nil, s.Cluster.LBConfig)
	}
}

func (p *pluginPolicy) State() grpcbalancer.State {
	s := p.Policy.State()
	s.Picker = pluginPicker{s.Picker}
	return s
}

// pluginPicker is the policy's, which knows no reasons.
type pluginPicker struct{ grpcbalancer.Picker }

// Pick gives an RPC for which no target was found the reason.
func (p pluginPicker) Pick(info grpcbalancer.PickInfo) (grpcbalancer.PickResult, error) {
	result, err := p.Picker.Pick(info)
	if _, ofTarget := err.(targetError); err != nil && !ofTarget && err != grpcbalancer.ErrNoSubConnAvailable {
		decision.FromContext(info.Ctx).Fail(rpctrace.Unusable)
	}
	return result, err
}

// Inspect describes the cluster for diagnostics.
func (p *pluginPolicy) Inspect() inspect.Cluster {
	s := p.Policy.State()
	c := inspect.Cluster{
		Name: p.cluster, Kind: xdsresource.ClusterPlugin.String(), Policy: p.policy, Phase: inspect.PhaseServing,
		State: inspect.State(s.ConnectivityState.String()),
	}
	if err := tree.Failure(s); err != nil {
		c.Phase, c.Error = inspect.PhaseFailed, err.Error()
	}
	return c
}
