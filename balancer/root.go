package balancer

import (
	"encoding/json"
	"errors"
	"time"

	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/clustertls"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/pmap"
)

// policyName is the policy's name in gRPC's registry.
const policyName = "dynxds_experimental"

// ownConfig is the only config of the policy that is valid: a service config of DNS cannot select the policy.
const ownConfig = `{"for":"the dynxds resolver"}`

// ServiceConfig is the service config, as JSON, that selects this policy.
const ServiceConfig = `{"loadBalancingConfig":[{"` + policyName + `":` + ownConfig + `}]}`

func init() { grpcbalancer.Register(builder{}) }

type builder struct{}

func (builder) Name() string { return policyName }

func (builder) Build(cc grpcbalancer.ClientConn, opts grpcbalancer.BuildOptions) grpcbalancer.Balancer {
	// Some credentials leave security to the control plane.
	usesXDS := grpcbridge.UsesXDS(opts.DialCreds, opts.CredsBundle)
	r := &root{cc: cc, state: new(State), targets: make(map[string]map[*targetPolicy]bool)}
	r.loop = tree.NewLoop(r.settle)
	r.env = &tree.Env{
		Loop: r.loop, ClientConn: cc, Options: opts,
		Setup: conns.Setup{
			Pool:     conns.NewPool(cc, r.loop.Post, linger),
			TLS:      clustertls.NewPool(usesXDS, opts.DialCreds, opts.CredsBundle),
			Recorded: grpcbridge.Records(cc.MetricsRecorder()),
		},
	}
	return r
}

// ParseConfig implements balancer.ConfigParser.
func (builder) ParseConfig(config json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	if string(config) != ownConfig {
		return nil, errNoState
	}
	return nil, nil
}

// errNoState is for channels that have the policy from a service config and not from the dynxds resolver.
var errNoState = errors.New("dynxds: load-balancing policy " + policyName +
	" works only where the dynxds resolver sets it: remove it from the service config, and dial a target of the scheme xds or dynxds")

// linger is how long a connection stays open after its last use, for a policy that connects to the same endpoint (package conns).
const linger = time.Second

// root is the policy. All but cc, loop and env is used on the loop.
type root struct {
	cc grpcbalancer.ClientConn

	loop *tree.Loop
	env  *tree.Env

	state    *State // before the first update one without a Version, whose Err is why there is none yet
	clusters pmap.Map[*lazyCluster]
	tally    tally
	// targets has the clusters that plugins have named, and who sends RPCs to them.
	targets map[string]map[*targetPolicy]bool
	// pickerOutdated is set when a lazyCluster has a new picker: RPCs that wait are picked for again when the channel's picker
	// is replaced.
	pickerOutdated bool
}

// UpdateClientConnState applies the State that is attached to the resolver's update. When it
// returns, gRPC has a picker of that State or of a later one, which a channel that switches to
// this policy relies on.
func (r *root) UpdateClientConnState(s grpcbalancer.ClientConnState) error {
	state := stateFrom(s.ResolverState)
	if state == nil {
		r.loop.Do(func() { r.refuse(errNoState) })
		return grpcbalancer.ErrBadResolverState
	}
	r.loop.Do(func() { r.update(state) })
	return nil
}

// ResolverError fails RPCs with err if there has been no State yet. Otherwise it has no effect:
// the resolver reports what ends a configuration in the next State.
func (r *root) ResolverError(err error) {
	r.loop.Do(func() { r.refuse(err) })
}

// UpdateSubConnState is not called, as all SubConns have a listener.
func (r *root) UpdateSubConnState(grpcbalancer.SubConn, grpcbalancer.SubConnState) {}

// ExitIdle connects the clusters of State.Default, and idle endpoints of clusters in use.
func (r *root) ExitIdle() {
	r.loop.Post(func() {
		r.connectDefault()
		for _, c := range r.clusters.All {
			c.exitIdle()
		}
	})
}

// Close ends the connections, timers and goroutines of the tree. RPCs in flight continue.
func (r *root) Close() {
	r.loop.Do(func() {
		r.env.Pool.Close()
		for _, c := range r.clusters.All {
			c.close()
		}
		for name, users := range r.targets { // Closed plugins do not end their subscriptions on a closed loop.
			r.state.Subscribe(name, -len(users))
		}
		r.clusters, r.pickerOutdated = pmap.Map[*lazyCluster]{}, false
		r.loop.Close()
	})
}

// update costs what differs from the old State.
func (r *root) update(state *State) {
	before := r.state.Clusters
	if r.state.Version == 0 {
		r.env.NoHealthChecks = state.NoHealthChecks
		if state.Live != nil {
			state.Live.Store(new(inspect.Balancer(r.inspect)))
		}
	}
	r.state = state
	clusters := r.clusters.Edit()
	var removed []*lazyCluster
	var named []string
	state.Clusters.Diff(before, func(name string, _, now *ClusterState, had, has bool) {
		if had != has && r.targets[name] != nil {
			named = append(named, name)
		}
		c, _ := r.clusters.Get(name)
		switch {
		case !has:
			clusters.Delete(name)
			r.tally.remove(c.connectivity)
			removed = append(removed, c)
		case !had:
			c = &lazyCluster{root: r, name: name, connectivity: connectivity.Idle}
			c.config.Store(now)
			clusters.Set(name, c)
			r.tally.add(c.connectivity)
		default:
			c.update(now)
		}
	})
	r.clusters = clusters.Map()
	for _, name := range named {
		r.tellTarget(name)
	}
	if state.Connect {
		r.connectDefault()
	}
	r.push()
	// Last, so that a pick that still finds a closed cluster finds this picker next.
	for _, c := range removed {
		c.close()
	}
}

func (r *root) refuse(err error) {
	if r.state.Version == 0 {
		r.state = &State{Err: err}
	}
	r.push()
}

func (r *root) connectDefault() {
	for _, name := range r.state.Default {
		if c, ok := r.clusters.Get(name); ok {
			c.activate()
		}
	}
}

// settle runs when the loop has worked off a burst of events.
func (r *root) settle() {
	if r.pickerOutdated {
		r.push()
	}
}

func (r *root) push() {
	r.pickerOutdated = false
	p := &picker{clusters: r.clusters, version: r.state.Version, reselect: r.state.Reselect}
	s := grpcbalancer.State{ConnectivityState: r.tally.aggregate(), Picker: p}
	if r.state.Err != nil {
		// Without the gRPC status of the error, which would end even RPCs that wait for ready.
		p.err = errors.New(bounds.Error(r.state.Err, bounds.RPCText).Error())
		s.ConnectivityState = connectivity.TransientFailure
	}
	r.cc.UpdateState(s)
}

// tally counts the clusters in each connectivity state, so that a change of one costs nothing
// for the others.
type tally [connectivity.Shutdown + 1]int

func (t *tally) add(s connectivity.State)    { t[s]++ }
func (t *tally) remove(s connectivity.State) { t[s]-- }

// aggregate returns the channel's state: that of the clusters that is first in tree.Order. Without clusters it is IDLE: nothing has failed.
func (t *tally) aggregate() connectivity.State {
	for _, s := range tree.Order {
		if t[s] > 0 {
			return s
		}
	}
	return connectivity.Idle
}
