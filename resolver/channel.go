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
// first, then DNS or xDS, as learn decides. The record remembers it over idle periods.
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
	dns    *dnsSource // while it is the source
	xds    *xdsSource // since there is a bootstrap, whatever the source
	logged string     // the last error that was logged

	// Until there is a bootstrap:
	timer    *time.Timer // reads the environment again
	interval time.Duration
	read     time.Time // when the environment was read last
}

// learn takes in what xDS says, with the error of s, or an error of the bootstrap, without s. It is the table of transitions:
//
//	source of the channel             none                      DNS               xDS
//	there is no bootstrap             DNS                       stays, silently   RPCs fail
//	the bootstrap cannot be used      RPCs fail                 stays             RPCs fail
//	an error for the first Listener   DNS if that is permitted  stays             RPCs fail
//	an error after that               xDS, whose RPCs fail      stays             RPCs fail
//	a configuration                   xDS                       xDS               stays
//
// A channel leaves DNS when there is a complete configuration, so that no RPC fails, and it never leaves xDS. The caller holds mu.
func (r *channelResolver) learn(err error, s *snapshot) {
	missing := s == nil && errors.Is(err, bootstrap.ErrNotConfigured)
	switch onXDS := r.dns == nil && r.record.Mode() == channels.XDS; {
	case onXDS && s != nil:
		r.xds.apply(s)
	case r.dns != nil && s != nil && s.config != nil:
		r.handOver(s)
	case r.dns != nil:
		if !missing {
			r.stay(err, s)
		}
	case !onXDS && s != nil && (s.config != nil || s.accepted):
		r.moveToXDS(s)
	case !onXDS && (missing || s != nil && permits(r.xds.bootstrap.DNSFallback, err)):
		r.tryDNS(err)
	default:
		r.fail(err)
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

// start reads the bootstrap. That of the environment may be fixed while the channel is open.
func (r *channelResolver) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readBootstrap() != nil && r.environment {
		r.interval, r.timer = minReread, time.AfterFunc(minReread, r.reread)
	}
}

func (r *channelResolver) reread() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed && r.xds == nil && r.readBootstrap() != nil {
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
	if err != nil {
		r.learn(err, nil)
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
	if before := r.record.Status(); before.Mode == channels.DNS && r.dns == nil {
		err := errors.New("the bootstrap no longer permits DNS")
		if config.DNSFallback != bootstrap.DNSFallbackNever || r.mustNotUseDNS() {
			err = r.startDNS(before.Reason)
		}
		if err != nil {
			r.record.SetMode(channels.Undecided, err.Error())
		}
	}
	return nil
}

// errCredentials is why DNS does not resolve the target of a channel that leaves the security
// of its connections to the control plane.
var errCredentials = errors.New("the channel's credentials, google.golang.org/grpc/credentials/xds, leave security to the control plane; " +
	"set dns_fallback in the bootstrap if DNS may resolve its target all the same")

// mustNotUseDNS reports whether DNS may not be used under any policy: see errCredentials.
func (r *channelResolver) mustNotUseDNS() bool {
	return r.usesXDS && (r.xds == nil || !r.xds.bootstrap.DNSFallbackGiven)
}

// tryDNS makes DNS the source, or fails RPCs if it cannot be that.
func (r *channelResolver) tryDNS(reason error) {
	if err := r.startDNS(reason.Error()); err != nil {
		r.fail(fmt.Errorf("%w; DNS cannot take its place: %w", reason, err))
		return
	}
	if r.xds == nil {
		withoutBootstrap.Do(func() {
			logger.Errorf("%s is resolved by DNS: no bootstrap is set; its RPCs go around the mesh, as do those of other channels without a bootstrap, "+
				"each of which has a warning: %v", r.channel.ClientConn().Target(), reason)
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
	r.dns = d
	return nil
}

// fail makes RPCs fail. gRPC gets no service config for that: DNS would inherit it if it had none of its own.
func (r *channelResolver) fail(err error) {
	if r.xds == nil {
		err = fmt.Errorf("dynxds: cannot resolve %s: %w", bounds.Quote(r.target.String()), err)
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

// stay logs why a channel stays with DNS.
func (r *channelResolver) stay(err error, s *snapshot) {
	if err.Error() == r.logged {
		return
	}
	r.logged = err.Error()
	log := logger.Infof
	if s == nil {
		log = logger.Warningf
	}
	log("%s: stays with DNS: %v", r.channel.ClientConn().Target(), err)
}

// moveToXDS makes xDS the source.
func (r *channelResolver) moveToXDS(s *snapshot) {
	r.record.SetMode(channels.XDS, fmt.Sprintf("the control plane has Listener %q", r.xds.graph.lds.name))
	r.xds.apply(s)
}

// handOver makes xDS the source in place of DNS, whose RPCs continue by xDS.
func (r *channelResolver) handOver(s *snapshot) {
	before := r.dns
	before.stop()
	before.close()
	r.dns = nil
	r.xds.connected = true // by DNS
	r.moveToXDS(s)
	before.handOverTo(r.xds.selector)
}

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
	if r.xds == nil && r.timer != nil && time.Since(r.read) >= minReread {
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
