package balancer

import (
	"errors"
	"time"

	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/clustertls"
	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/pmap"
)

// policyName is the policy's name in gRPC's registry of balancers.
const policyName = "dynxds_experimental"

// ServiceConfig is the service config, in JSON, that selects the policy.
const ServiceConfig = `{"loadBalancingConfig":[{"` + policyName + `":{}}]}`

func init() { grpcbalancer.Register(builder{}) }

type builder struct{}

func (builder) Name() string { return policyName }

func (builder) Build(cc grpcbalancer.ClientConn, opts grpcbalancer.BuildOptions) grpcbalancer.Balancer {
	r := &root{cc: cc, usesXDS: grpcbridge.UsesXDS(opts.DialCreds, opts.CredsBundle)}
	r.loop = tree.NewLoop(r.settle)
	r.env = &tree.Env{
		Loop: r.loop, ClientConn: cc, Options: opts, Conns: conns.New(cc, r.loop.Post, linger),
		TLS: clustertls.NewPool(r.usesXDS, opts.CredsBundle),
	}
	return r
}

// errNoState is what happens when the policy's name is in the service config
// of a channel whose resolver is another one.
var errNoState = errors.New("dynxds: load-balancing policy " + policyName +
	" works only with the dynxds resolver: dial a target of the scheme xds or dynxds")

// linger covers the moment between the pick of a connection and the opening of
// the RPC's stream on it. gRPC-Go 1.85 has a fault there: if the connection is
// shut down in that moment while another stream keeps it open, the RPC hangs
// until its deadline or until that other stream ends. Within that time a connection
// is taken up again if its endpoint comes back (package conns).
const linger = time.Second

// root is the policy. Its fields but cc, usesXDS, loop and env are for the loop.
type root struct {
	cc grpcbalancer.ClientConn
	// usesXDS: the channel leaves the security of connections to the control plane.
	usesXDS bool

	loop *tree.Loop
	env  *tree.Env

	state *State // nil until the first update
	cells pmap.Map[*cell]
	tally tally
	// refused is why there is no state yet.
	refused error
	// news says that the channel's picker is behind.
	news bool
}

// UpdateClientConnState takes over the State attached to the resolver's update.
// By the time it returns, gRPC has a picker of that State or a later one: a
// channel that switches to this policy from another one depends on that.
func (r *root) UpdateClientConnState(s grpcbalancer.ClientConnState) error {
	state := stateFrom(s.ResolverState)
	if state == nil {
		r.loop.Do(func() { r.refuse(errNoState) })
		return grpcbalancer.ErrBadResolverState
	}
	r.loop.Do(func() { r.update(state) })
	return nil
}

// ResolverError fails RPCs with err if there never was a State. Otherwise the
// State stays in use: the resolver puts what ends it into the next State.
func (r *root) ResolverError(err error) {
	r.loop.Do(func() { r.refuse(err) })
}

// UpdateSubConnState is not called: all SubConns have a listener.
func (r *root) UpdateSubConnState(grpcbalancer.SubConn, grpcbalancer.SubConnState) {}

// ExitIdle connects the clusters that State.Default names, and whatever is idle
// in clusters that are in use.
func (r *root) ExitIdle() { r.loop.Post(r.exitIdle) }

// Close ends the tree: its connections, timers and goroutines. RPCs on the
// connections go on to their end.
func (r *root) Close() {
	r.loop.Do(func() {
		r.env.Conns.Close()
		for _, c := range r.cells.All {
			c.close()
		}
		r.cells, r.news = pmap.Map[*cell]{}, false
		r.loop.Close()
	})
}

// update costs what changed since the State before.
func (r *root) update(state *State) {
	var before pmap.Map[*ClusterState]
	if r.state != nil {
		before = r.state.Clusters
	}
	r.state, r.refused = state, nil
	cells := r.cells.Edit()
	var removed []*cell
	state.Clusters.Diff(before, func(name string, _, now *ClusterState, had, has bool) {
		c, _ := r.cells.Get(name)
		switch {
		case !has:
			cells.Delete(name)
			r.tally.remove(c.connectivity)
			removed = append(removed, c)
		case !had:
			c = newCell(r, name, now)
			cells.Set(name, c)
			r.tally.add(c.connectivity)
		default:
			c.update(now)
		}
	})
	r.cells = cells.Map()
	if state.Connect {
		r.connectDefault()
	}
	r.push()
	// Only now: a pick that still finds a closed cluster finds this picker next.
	for _, c := range removed {
		c.close()
	}
}

func (r *root) refuse(err error) {
	if r.state == nil {
		r.refused = err
	}
	r.push()
}

func (r *root) exitIdle() {
	if r.state == nil {
		return
	}
	r.connectDefault()
	for _, c := range r.cells.All {
		c.exitIdle()
	}
}

func (r *root) connectDefault() {
	for _, name := range r.state.Default {
		if c, ok := r.cells.Get(name); ok {
			c.activate()
		}
	}
}

// cellChanged notes that a cell has a new picker. RPCs that wait will not look
// at it before the channel's picker is replaced.
func (r *root) cellChanged() { r.news = true }

// settle runs when the loop has worked off a burst of events.
func (r *root) settle() {
	if r.news {
		r.push()
	}
}

func (r *root) push() {
	r.news = false
	p := &picker{cells: r.cells}
	switch {
	case r.state == nil:
		p.err = plain(r.refused)
	case r.state.Err != nil:
		p.version, p.err = r.state.Version, plain(r.state.Err)
	default:
		p.version, p.reselect = r.state.Version, r.state.Reselect
	}
	s := grpcbalancer.State{ConnectivityState: r.tally.aggregate(), Picker: p}
	if p.err != nil {
		s.ConnectivityState = connectivity.TransientFailure
	}
	r.cc.UpdateState(s)
}

// plain is err's text without its gRPC status, if it has one: a status error
// would end even the RPCs that wait for ready.
func plain(err error) error { return errors.New(err.Error()) }
