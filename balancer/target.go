package balancer

import (
	"encoding/json"
	"errors"
	"fmt"

	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"

	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// TargetPolicy is the name, in gRPC's registry, of the policy that sends RPCs to a cluster of the channel. Its config is
// {"cluster": NAME}. It works only below the policy of a cluster specifier plugin.
const TargetPolicy = "dynxds_target_experimental"

func init() { grpcbalancer.Register(targetBuilder{}) }

// rootKey is that of the root in the attributes that a TargetPolicy gets.
type rootKey struct{}

// tellTarget passes the state of a cluster on to the plugins that have named it.
func (r *root) tellTarget(name string) {
	for user := range r.targets[name] {
		user.report(r.targetState(name))
	}
}

// targetState is that of a cluster. One that is not in the State is waited for.
func (r *root) targetState(name string) grpcbalancer.State {
	if c, ok := r.clusters.Get(name); ok {
		return grpcbalancer.State{ConnectivityState: c.connectivity, Picker: &targetPicker{c, c.picker.Load()}}
	}
	return tree.Waiting(connectivity.Connecting)
}

// targetPicker picks as the cluster did when its state was reported, and not as it does now: a parent that goes to the next target
// if one has failed must hear that it has before its RPCs do.
type targetPicker struct {
	cluster *lazyCluster
	picker  *grpcbalancer.Picker // nil: the cluster was not active
}

// Pick takes no lock and allocates nothing, unless it fails.
func (p *targetPicker) Pick(info grpcbalancer.PickInfo) (grpcbalancer.PickResult, error) {
	result, err := p.cluster.pickBy(p.picker, info)
	if err != nil && err != grpcbalancer.ErrNoSubConnAvailable {
		err = targetError{err}
	}
	return result, err
}

// targetError is why a target has no endpoint for an RPC. The RPC's trace has it, so that it is not the plugin's own failure.
type targetError struct{ error }

func (e targetError) Unwrap() error { return e.error }

// follow makes the cluster of the given name known, and its state to the user.
func (r *root) follow(name string, user *targetPolicy) {
	if r.targets[name] == nil {
		r.targets[name] = make(map[*targetPolicy]bool)
	}
	r.targets[name][user] = true
	r.state.Subscribe(name, 1)
	user.report(r.targetState(name))
}

func (r *root) unfollow(name string, user *targetPolicy) {
	if !r.targets[name][user] {
		return
	}
	if delete(r.targets[name], user); len(r.targets[name]) == 0 {
		delete(r.targets, name)
	}
	r.state.Subscribe(name, -1)
}

type targetBuilder struct{}

func (targetBuilder) Name() string { return TargetPolicy }

func (targetBuilder) Build(cc grpcbalancer.ClientConn, _ grpcbalancer.BuildOptions) grpcbalancer.Balancer {
	return &targetPolicy{cc: cc}
}

// targetConfig is the config of a TargetPolicy.
type targetConfig struct {
	serviceconfig.LoadBalancingConfig `json:"-"`
	Cluster                           string `json:"cluster"`
}

// ParseConfig implements balancer.ConfigParser.
func (targetBuilder) ParseConfig(text json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	c := new(targetConfig)
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("dynxds: config of %s: %w", TargetPolicy, err)
	}
	return c, nil
}

// targetPolicy sends RPCs to a cluster. Its parent calls it with locks that it needs for reports too, so that all work is
// posted to the loop.
type targetPolicy struct {
	cc grpcbalancer.ClientConn
	// root and cluster are set by the parent's calls, which do not overlap.
	root    *root
	cluster string
	// closed is used on the loop.
	closed bool
}

// UpdateClientConnState implements balancer.Balancer.
func (p *targetPolicy) UpdateClientConnState(s grpcbalancer.ClientConnState) error {
	r, _ := s.ResolverState.Attributes.Value(rootKey{}).(*root)
	config, _ := s.BalancerConfig.(*targetConfig)
	switch {
	case r == nil || config == nil:
		p.cc.UpdateState(tree.Failing(errors.New("dynxds: policy "+TargetPolicy+" works only below that of a cluster specifier plugin"), nil))
		return grpcbalancer.ErrBadResolverState
	case config.Cluster == p.cluster && p.root != nil:
		return nil
	}
	before := p.cluster
	p.root, p.cluster = r, config.Cluster
	_, nested := xdsresource.PluginName(config.Cluster)
	if config.Cluster == "" || nested {
		p.cc.UpdateState(tree.Failing(fmt.Errorf("dynxds: the plugin names %s, which cannot be a cluster of it: have its lookup service, or default_target, name a Cluster", bounds.Quote(config.Cluster)), nil))
	}
	r.loop.Post(func() {
		r.unfollow(before, p)
		if !p.closed && config.Cluster != "" && !nested {
			r.follow(config.Cluster, p)
		}
	})
	return nil
}

// report is called on the loop.
func (p *targetPolicy) report(s grpcbalancer.State) {
	if !p.closed {
		p.cc.UpdateState(s)
	}
}

// ResolverError does nothing: the resolver reports what is wrong with a cluster in its state.
func (p *targetPolicy) ResolverError(error) {}

// UpdateSubConnState is not called: the policy has no SubConns.
func (p *targetPolicy) UpdateSubConnState(grpcbalancer.SubConn, grpcbalancer.SubConnState) {}

// ExitIdle connects the cluster.
func (p *targetPolicy) ExitIdle() {
	r, name := p.root, p.cluster
	if r == nil {
		return
	}
	r.loop.Post(func() {
		if c, ok := r.clusters.Get(name); ok {
			c.activate()
		}
	})
}

// Close implements balancer.Balancer.
func (p *targetPolicy) Close() {
	r, name := p.root, p.cluster
	if r == nil {
		return
	}
	r.loop.Post(func() {
		p.closed = true
		r.unfollow(name, p)
	})
}
