package resolver

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

var logger = boundlog.Component("dynxds")

// channelResolver is the resolver of one channel, between idle periods. One source configures the channel: none at
// first, then DNS or xDS, as transitions say.
type channelResolver struct {
	*builder
	acquire acquire
	target  grpcresolver.Target
	cc      grpcresolver.ClientConn
	opts    grpcresolver.BuildOptions
	usesXDS bool // the channel leaves the security of connections to the control plane
	channel *grpcbridge.Channel
	record  *channels.Record // which outlives idle periods

	// mu is held while anything changes, including calls of gRPC, which calls ResolveNow and Close on a
	// goroutine that it does not wait for.
	mu     sync.Mutex
	closed bool
	source channels.Mode // XDS if that was the source before the channel was idle
	dns    *dnsSource    // while it is the source
	xds    *xdsSource    // since there is a bootstrap, whatever the source
	logged string        // the last error that was logged

	// Until there is a bootstrap:
	timer    *time.Timer // reads the environment again
	interval time.Duration
	read     time.Time // when the environment was read last
}

// event is what decides on the source.
type event int

const (
	bootstrapMissing event = iota // the environment has none
	bootstrapFaulty               // or one that cannot be used
	targetUnknown                 // there is an answer in place of the first Listener, after which the policy permits DNS
	listenerRefused               // one after which it does not
	listenerAccepted              // there is a Listener, but no configuration for it
	configComplete                // there is a configuration, on DNS a complete one
)

// news is an event with what belongs to it.
type news struct {
	event    event
	err      error     // its reason; nil for configComplete
	snapshot *snapshot // of xDS; nil without a bootstrap
}

// transitions are what a channel does, by its source. A channel leaves DNS when there is a complete configuration, so that
// no RPC fails, and it never leaves xDS.
var transitions = map[channels.Mode]map[event]func(*channelResolver, news){
	channels.Undecided: {
		bootstrapMissing: (*channelResolver).tryDNS,
		bootstrapFaulty:  (*channelResolver).fail,
		targetUnknown:    (*channelResolver).tryDNS,
		listenerRefused:  (*channelResolver).fail,
		listenerAccepted: (*channelResolver).moveToXDS,
		configComplete:   (*channelResolver).moveToXDS,
	},
	channels.DNS: {
		bootstrapFaulty:  (*channelResolver).stay,
		targetUnknown:    (*channelResolver).stay,
		listenerRefused:  (*channelResolver).stay,
		listenerAccepted: (*channelResolver).stay,
		configComplete:   (*channelResolver).handOver,
	},
	channels.XDS: {
		bootstrapMissing: (*channelResolver).fail,
		bootstrapFaulty:  (*channelResolver).fail,
		targetUnknown:    (*channelResolver).follow,
		listenerRefused:  (*channelResolver).follow,
		listenerAccepted: (*channelResolver).follow,
		configComplete:   (*channelResolver).follow,
	},
}

// learn carries out a transition. The caller holds mu.
func (r *channelResolver) learn(n news) {
	if do := transitions[r.source][n.event]; do != nil {
		do(r, n)
	}
}

// permits reports whether a policy permits DNS after err in place of the channel's Listener:
// the control plane has said that it does not know the target; with "timeout", it does not answer for it;
// with "unavailable", it cannot be reached either. One that denies access, or whose Listener is invalid,
// knows the target.
func permits(policy bootstrap.DNSFallback, err error) bool {
	var e *xdsclient.Error
	if policy == bootstrap.DNSFallbackNever || !errors.As(err, &e) {
		return false
	}
	switch e.Kind {
	case xdsclient.KindDoesNotExist:
		return true
	case xdsclient.KindServer:
		return e.Code == codes.NotFound
	case xdsclient.KindTimeout:
		return policy == bootstrap.DNSFallbackTimeout || policy == bootstrap.DNSFallbackUnavailable
	case xdsclient.KindUnreachable:
		return policy == bootstrap.DNSFallbackUnavailable
	default:
		return false
	}
}

// A channel without a bootstrap reads the environment again after minReread, and then at
// growing intervals up to maxReread; sooner if gRPC calls ResolveNow, but at least minReread
// after the last time.
const (
	minReread = 250 * time.Millisecond
	maxReread = 10 * time.Second
)

// start returns an error if there will be no bootstrap.
func (r *channelResolver) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.source = channels.Undecided
	if r.record.Mode() == channels.XDS {
		r.source = channels.XDS
	}
	err := r.readBootstrap()
	if err == nil {
		return nil
	}
	if !r.environment {
		return r.failure(err)
	}
	r.interval, r.timer = minReread, time.AfterFunc(minReread, r.reread)
	return nil
}

func (r *channelResolver) reread() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.xds != nil {
		return
	}
	if err := r.readBootstrap(); err != nil {
		r.interval = min(2*r.interval, maxReread)
		r.timer.Reset(r.interval)
	}
}

// readBootstrap starts xDS if there is a bootstrap. The caller holds mu.
func (r *channelResolver) readBootstrap() error {
	r.read = time.Now()
	config, err := r.config()
	if err == nil {
		err = r.startXDS(config)
	}
	switch {
	case err == nil || !r.environment:
	case errors.Is(err, bootstrap.ErrNotConfigured):
		r.learn(news{event: bootstrapMissing, err: err})
	default:
		r.learn(news{event: bootstrapFaulty, err: err})
	}
	return err
}

// startXDS starts to watch the Listener of the target. A channel that DNS served before it was idle continues with DNS, so that its RPCs
// do not wait again for the control plane to answer that there is no Listener. The caller holds mu.
func (r *channelResolver) startXDS(config *bootstrap.Config) error {
	x, err := newXDSSource(r, config)
	if err != nil {
		return err
	}
	r.xds, r.logged = x, ""
	if before := r.record.Status(); before.Mode == channels.DNS && r.source != channels.DNS {
		err := errNeverDNS
		if config.DNSFallback != bootstrap.DNSFallbackNever || r.mustNotUseDNS() {
			err = r.startDNS(before.Reason)
		}
		if err != nil {
			r.record.SetMode(channels.Undecided, err.Error())
		}
	}
	x.start()
	return nil
}

var (
	errNeverDNS = errors.New("the bootstrap no longer permits DNS")
	// errCredentials is why DNS does not resolve the target of a channel that leaves the security
	// of its connections to the control plane.
	errCredentials = errors.New("the channel's credentials, google.golang.org/grpc/credentials/xds, leave security to the control plane; " +
		"set dns_fallback in the bootstrap if DNS may resolve its target all the same")
)

// mustNotUseDNS reports whether DNS may not be used under any policy: see errCredentials.
func (r *channelResolver) mustNotUseDNS() bool {
	return r.usesXDS && (r.xds == nil || !r.xds.bootstrap.DNSFallbackGiven)
}

// tryDNS makes DNS the source, or fails RPCs if it cannot be that.
func (r *channelResolver) tryDNS(n news) {
	if err := r.startDNS(n.err.Error()); err != nil {
		n.err = fmt.Errorf("%w; DNS cannot take its place: %w", n.err, err)
		r.fail(n)
		return
	}
	if n.event == bootstrapMissing {
		withoutBootstrap.Do(func() {
			logger.Errorf("%s is resolved by DNS: no bootstrap is set; its RPCs go around the mesh, as do those of other channels without a bootstrap, "+
				"each of which has a warning: %v", r.channel.ClientConn().Target(), n.err)
		})
	}
}

// withoutBootstrap is for the error of the first channel that has no bootstrap and is resolved by DNS: its RPCs may succeed, and gRPC's
// log has no warnings by default.
var withoutBootstrap sync.Once

// startDNS makes DNS the source, for the given reason. The caller holds mu.
func (r *channelResolver) startDNS(reason string) error {
	if r.mustNotUseDNS() {
		return errCredentials
	}
	d, err := newDNSSource(r, reason)
	if err != nil {
		return err
	}
	r.dns, r.source = d, channels.DNS
	return nil
}

// fail makes RPCs fail. gRPC gets no service config for that: DNS would inherit it if it had none of its own.
func (r *channelResolver) fail(n news) {
	err := n.err
	if r.xds == nil {
		err = r.failure(err)
	}
	if err.Error() == r.logged {
		return
	}
	r.logged = err.Error()
	logger.Warningf("%s: no configuration: %v", r.channel.ClientConn().Target(), err)
	if r.record.Mode() == channels.DNS { // from before it was idle
		r.record.SetMode(channels.Undecided, err.Error())
	}
	r.record.SetReason(err.Error())
	r.cc.ReportError(err)
	r.channel.Fail(err)
}

// failure returns the error of RPCs because of a bootstrap or target that cannot be used.
func (r *channelResolver) failure(err error) error {
	return fmt.Errorf("dynxds: cannot resolve %s: %w", bounds.Quote(r.target.String()), err)
}

// stay logs why a channel stays with DNS.
func (r *channelResolver) stay(n news) {
	if n.err.Error() == r.logged {
		return
	}
	r.logged = n.err.Error()
	log := logger.Infof
	if n.event == bootstrapFaulty {
		log = logger.Warningf
	}
	log("%s: stays with DNS: %v", r.channel.ClientConn().Target(), n.err)
}

// moveToXDS makes xDS the source.
func (r *channelResolver) moveToXDS(n news) {
	r.source = channels.XDS
	r.record.SetMode(channels.XDS, fmt.Sprintf("the control plane has Listener %q", r.xds.listener))
	r.follow(n)
}

// handOver makes xDS the source in place of DNS, whose RPCs continue by xDS.
func (r *channelResolver) handOver(n news) {
	before := r.dns
	before.stop()
	before.close()
	r.dns = nil
	r.xds.connected = true // by DNS
	r.moveToXDS(n)
	before.handOverTo(r.xds.selector)
}

// follow applies a snapshot of xDS.
func (r *channelResolver) follow(n news) { r.xds.apply(n.snapshot) }

// ResolveNow implements resolver.Resolver. It is for DNS and for the bootstrap; management servers push.
func (r *channelResolver) ResolveNow(o grpcresolver.ResolveNowOptions) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if r.dns != nil {
		r.dns.child.ResolveNow(o)
	}
	if r.xds == nil && time.Since(r.read) >= minReread {
		r.timer.Reset(0)
	}
}

// Close implements resolver.Resolver.
func (r *channelResolver) Close() {
	r.mu.Lock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.dns != nil {
		r.dns.close()
	}
	r.mu.Unlock()
	if r.xds != nil {
		r.xds.stop()
	}
	r.channel.Detach()
	if r.xds != nil {
		r.xds.close()
	}
}
