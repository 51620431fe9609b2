package resolver

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/configselector"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/rpcmetrics"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// versions numbers the snapshots of all channels of the process: numbers per channel would
// start again after an idle period, while older RPCs may still be in flight.
var versions atomic.Uint64

// xdsSource configures a channel by xDS: it publishes the snapshots of a graph. Its fields that change are guarded by
// channelResolver.mu.
type xdsSource struct {
	*channelResolver
	bootstrap     *bootstrap.Config
	release       func() // of the client
	metrics       *rpcmetrics.Recorder
	serviceConfig *serviceconfig.ParseResult
	graph         *graph
	rpcs          *configselector.Channel
	// live leads to the balancer, for diagnostics, which find the source until unregister.
	live       atomic.Pointer[inspect.Balancer]
	unregister func()
	applied    atomic.Uint64 // the version of the last snapshot that was; 0 before the first

	published *snapshot
	config    *config                  // in use, or nil
	selector  *configselector.Selector // made of it
	connected bool                     // a State with a configuration was published

	pending    atomic.Bool    // publish is about to run
	publishers sync.WaitGroup // of publish
}

// newXDSSource returns the source for a bootstrap, and begins to watch. The caller holds mu, for which what follows from that waits.
func newXDSSource(r *channelResolver, config *bootstrap.Config) (*xdsSource, error) {
	if r.opts.DisableServiceConfig {
		return nil, errors.New("grpc.WithDisableServiceConfig makes the channel ignore the load-balancing policy that xDS needs; dial without it")
	}
	listener, err := config.ListenerName(r.target.URL.Host, r.target.Endpoint())
	if err != nil {
		return nil, err
	}
	client, release, err := r.acquire(config, r.target.String(), r.opts.MetricsRecorder)
	if err != nil {
		return nil, err
	}
	cc := r.channel.ClientConn()
	x := &xdsSource{
		channelResolver: r,
		bootstrap:       config,
		release:         release,
		serviceConfig:   r.cc.ParseServiceConfig(balancer.ServiceConfig),
		rpcs:            configselector.NewChannel(cc, r.opts.Authority, secure(r.opts), r.opts.MetricsRecorder),
		metrics:         rpcmetrics.New(cc.CanonicalTarget(), r.opts.MetricsRecorder),
	}
	if x.metrics != nil {
		x.rpcs.Observe = x.metrics.Begin
	}
	x.graph = newGraph(client, listener, r.opts.Authority, x.changed)
	x.graph.usesXDS = r.usesXDS
	x.unregister = x.record.SetSource(x)
	return x, nil
}

// stop ends the watches. No snapshot is published any more.
func (x *xdsSource) stop() {
	x.unregister()
	x.graph.close()
	x.publishers.Wait()
}

// close follows stop, when RPCs no longer find the Selector.
func (x *xdsSource) close() {
	x.config, x.selector = nil, nil
	x.metrics.Close()
	x.release()
}

// changed is called by the graph when a new snapshot would differ from the last one.
// Publishing waits for gRPC and for the balancer, so it runs on a goroutine. Changes that arrive before it has begun share one snapshot.
func (x *xdsSource) changed() {
	if x.pending.CompareAndSwap(false, true) {
		x.publishers.Go(x.publish)
	}
}

func (x *xdsSource) publish() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pending.Store(false)
	if x.closed {
		return
	}
	if s := x.graph.snapshot(x.dns != nil); s != x.published && (s.config != nil || s.err != nil) {
		x.published = s
		x.learn(s.err, s)
	}
}

// apply gives a snapshot to the balancer and to the interceptors. An RPC that sees it in one
// of them first waits for the other, by the version.
func (x *xdsSource) apply(s *snapshot) {
	x.applied.Store(s.version)
	cc := x.channel.ClientConn()
	state := &balancer.State{
		Version: s.version, Clusters: s.clusters, Err: s.err,
		NoHealthChecks: grpcbridge.DisablesHealthChecks(cc), Live: &x.live, Subscribe: x.graph.subscribe,
	}
	if s.config != nil {
		if s.config != x.config {
			x.config, x.selector = s.config, x.rpcs.NewSelector(configselector.Config{
				Version:         s.version,
				Listener:        s.config.listener,
				VirtualHost:     s.config.virtualHost,
				RouteConfigName: s.config.routes.Name,
				Last:            x.selector,
			})
			logger.Infof("%s: routes of version %d in use: Listener %q, RouteConfiguration %q, virtual host %q",
				cc.Target(), s.version, s.config.listener.Name, s.config.routes.Name, s.config.virtualHost.Name)
		}
		if routes := s.config.virtualHost.Routes; len(routes) > 0 {
			state.Default = slices.Collect(routes[len(routes)-1].Clusters) // The last route is usually the default one.
		}
		state.Connect = !x.connected && !x.channel.Awaited()
		x.connected = true
		state.Reselect = x.selector.Reselect
	}
	if err := x.cc.UpdateState(balancer.SetState(grpcresolver.State{ServiceConfig: x.serviceConfig}, state)); err != nil {
		logger.Warningf("%s: gRPC rejected version %d of the configuration: %v", cc.Target(), s.version, err)
	}
	switch {
	case s.err != nil:
		logger.Warningf("%s: no configuration: %v", cc.Target(), s.err)
		x.channel.Fail(s.err)
		x.metrics.Configured(false)
		x.config, x.selector = nil, nil // RPCs are given to no Selector any more.
	case s.config != nil:
		x.metrics.Configured(true)
		x.channel.Publish(x.selector)
	}
}
