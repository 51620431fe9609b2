package resolver

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/configselector"
	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/rpcmetrics"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

var logger = boundlog.Component("dynxds")

// versions numbers the snapshots of all channels of the process: numbers per channel would
// start again after an idle period, while older RPCs may still be in flight.
var versions atomic.Uint64

type resolverConfig struct {
	*request
	client   xdsclient.Client
	release  func()
	listener string // the name of the Listener
	usesXDS  bool   // the channel leaves the security of connections to the control plane
	policy   bootstrap.DNSFallback
	noDNS    bool // DNS may not be used under any policy: errCredentials
}

// xdsResolver is the resolver of one channel, between idle periods. It publishes the
// snapshots of its graph.
type xdsResolver struct {
	resolverConfig
	metrics       *rpcmetrics.Recorder
	serviceConfig *serviceconfig.ParseResult
	graph         *graph
	rpcs          *configselector.Channel
	// noHealthChecks: see balancer.State.
	noHealthChecks bool
	// live leads to the balancer, for diagnostics, which find the resolver until unregister.
	live       inspect.Live
	unregister func()
	applied    atomic.Pointer[applied] // last; nil before the first snapshot

	// Only the publisher uses these.
	published *snapshot
	config    *config                  // in use, or nil
	selector  *configselector.Selector // made of it
	connected bool                     // a State with a configuration was published
	stayed    string                   // the last logged reason to stay with DNS

	mu         sync.Mutex
	pending    bool           // the graph has changed since the last snapshot
	publishing bool           // publishAll runs
	closed     bool           // publishAll does not start again
	publishers sync.WaitGroup // of publishAll
}

func newResolver(c resolverConfig) *xdsResolver {
	r := &xdsResolver{
		resolverConfig: c,
		serviceConfig:  c.cc.ParseServiceConfig(balancer.ServiceConfig),
		rpcs:           configselector.NewChannel(c.channel.ClientConn(), c.opts.Authority, secure(c.opts), c.opts.MetricsRecorder),
		noHealthChecks: grpcbridge.DisablesHealthChecks(c.channel.ClientConn()),
		metrics:        rpcmetrics.New(c.channel.ClientConn().CanonicalTarget(), c.opts.MetricsRecorder),
	}
	if r.metrics != nil {
		r.rpcs.Observe = r.metrics.Begin
	}
	r.graph = newGraph(c.client, c.listener, c.opts.Authority, r.changed)
	r.graph.usesXDS = c.usesXDS
	r.unregister = r.record.SetSource(r)
	r.resume()
	r.graph.start()
	return r
}

// resume continues with DNS if that served the channel before there was a bootstrap, or
// before it was idle, so that RPCs do not wait again for the control plane to answer that
// there is no Listener. In the first case DNS serves on until xDS can take over.
func (r *xdsResolver) resume() {
	before := r.record.Status()
	if before.Mode != channels.DNS {
		return
	}
	var err error
	switch {
	case r.dns.started():
		err = r.fallBack(before.Reason)
	case r.noDNS:
		err = errCredentials
	case r.policy == bootstrap.DNSFallbackNever:
		err = errNeverDNS
	default:
		err = r.fallBack(before.Reason)
	}
	if err != nil {
		r.record.SetMode(channels.Undecided, err.Error())
	}
}

var errNeverDNS = errors.New("the bootstrap no longer permits DNS")

// ResolveNow implements resolver.Resolver. It is for DNS; management servers push.
func (r *xdsResolver) ResolveNow(o grpcresolver.ResolveNowOptions) { r.dns.resolveNow(o) }

// Close implements resolver.Resolver.
func (r *xdsResolver) Close() {
	r.unregister()
	r.graph.close()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.publishers.Wait()
	r.dns.close()
	r.channel.Detach()
	r.forget()
	r.rpcs.Close()
	r.metrics.Close()
	r.release()
}

// applied is when a snapshot was given to the balancer, for diagnostics.
type applied struct {
	version uint64
	at      time.Time
}

// changed is called by the graph when a new snapshot would differ from the last one.
// Publishing waits for gRPC and for the balancer, so it runs on a goroutine, which ends when
// nothing is left to publish. Changes that arrive meanwhile share one snapshot.
func (r *xdsResolver) changed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = true
	if r.publishing || r.closed {
		return
	}
	r.publishing = true
	r.publishers.Go(r.publishAll)
}

func (r *xdsResolver) publishAll() {
	for {
		r.mu.Lock()
		if !r.pending || r.closed {
			r.publishing = false
			r.mu.Unlock()
			return
		}
		r.pending = false
		r.mu.Unlock()
		if s := r.graph.snapshot(); s != r.published && (s.config != nil || s.err != nil) {
			r.published = s
			r.publish(s)
		}
	}
}

// apply gives a snapshot to the balancer and to the interceptors. An RPC that sees it in one
// of them first waits for the other, by the version.
func (r *xdsResolver) apply(s *snapshot) {
	r.applied.Store(&applied{s.version, time.Now()})
	state := &balancer.State{Version: s.version, Clusters: s.clusters, NoHealthChecks: r.noHealthChecks, Live: &r.live, Err: s.err}
	if s.config != nil {
		if s.config != r.config {
			r.config, r.selector = s.config, r.rpcs.NewSelector(configselector.Config{
				Version:         s.version,
				Listener:        s.config.listener,
				VirtualHost:     s.config.virtualHost,
				RouteConfigName: s.config.routes.Name,
			})
			logger.Infof("%s: routes of version %d in use: Listener %q, RouteConfiguration %q, virtual host %q",
				r.channel.ClientConn().Target(), s.version, s.config.listener.Name, s.config.routes.Name, s.config.virtualHost.Name)
		}
		state.Default = s.config.defaultClusters
		state.Connect = !r.connected && !r.channel.Awaited()
		r.connected = true
		state.Reselect = r.selector.Reselect
	}
	defer changes.Touch()
	if err := r.cc.UpdateState(balancer.SetState(grpcresolver.State{ServiceConfig: r.serviceConfig}, state)); err != nil {
		logger.Warningf("%s: gRPC rejected version %d of the configuration: %v", r.channel.ClientConn().Target(), s.version, err)
	}
	switch {
	case s.err != nil:
		logger.Warningf("%s: no configuration: %v", r.channel.ClientConn().Target(), s.err)
		r.channel.Fail(s.err)
		r.metrics.Configured(false)
		r.forget()
	case s.config != nil:
		r.metrics.Configured(true)
		r.channel.Publish(r.selector)
	}
}

// forget is called when RPCs are given to no Selector any more.
func (r *xdsResolver) forget() {
	r.config, r.selector = nil, nil
	r.rpcs.Forget()
}
