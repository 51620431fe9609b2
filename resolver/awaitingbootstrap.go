package resolver

import (
	"errors"
	"fmt"
	"sync"
	"time"

	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// A channel without a bootstrap reads the environment again after minReread, and then at
// growing intervals up to maxReread; sooner if gRPC calls ResolveNow, but at least minReread
// after the last time.
const (
	minReread = 250 * time.Millisecond
	maxReread = 10 * time.Second
)

// awaitingBootstrap is the resolver of a channel for which the environment has no valid bootstrap. DNS
// resolves the target, or RPCs fail, until there is one; then it delegates to an
// xdsResolver. Until then it only runs a timer, which Close ends.
type awaitingBootstrap struct {
	*request

	// mu is held while the environment is read and the result applied, including calls of
	// gRPC, which calls ResolveNow and Close on a goroutine that it does not wait for.
	mu        sync.Mutex
	closed    bool
	resolver  *xdsResolver // has taken over, if not nil
	timer     *time.Timer
	interval  time.Duration
	read      time.Time // when the environment was read last
	byDNS     bool
	lastError string // reported last
}

// newAwaitingBootstrap returns the resolver for a request that failed with err.
func newAwaitingBootstrap(q *request, err error) *awaitingBootstrap {
	p := &awaitingBootstrap{request: q, interval: minReread, read: time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.withoutBootstrap(err)
	p.timer = time.AfterFunc(p.interval, p.reread)
	return p
}

func (p *awaitingBootstrap) reread() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.resolver != nil {
		return
	}
	p.read = time.Now()
	r, err := p.resolve()
	if err == nil {
		p.resolver = r
		return
	}
	p.withoutBootstrap(err)
	p.interval = min(2*p.interval, maxReread)
	p.timer.Reset(p.interval)
}

// withoutBootstrap starts DNS, or fails RPCs, because of err. If DNS runs, it continues when
// the environment gets a faulty bootstrap.
func (p *awaitingBootstrap) withoutBootstrap(err error) {
	if errors.Is(err, bootstrap.ErrNotConfigured) {
		if err = p.startDNS(err); err == nil {
			p.byDNS, p.lastError = true, ""
			return
		}
	}
	err = p.failure(err)
	if err.Error() == p.lastError {
		return
	}
	p.lastError = err.Error()
	if p.byDNS {
		logger.Warningf("%s: stays with DNS: %v", p.channel.ClientConn().Target(), err)
		return
	}
	logger.Warningf("%s: no configuration: %v", p.channel.ClientConn().Target(), err)
	if p.record.Mode() == channels.DNS { // from before it was idle
		p.record.SetMode(channels.Undecided, err.Error())
	}
	p.record.SetReason(err.Error())
	p.cc.ReportError(err)
	p.channel.Fail(err)
}

// startDNS starts DNS because there is no bootstrap, for which notConfigured is the error. A
// channel that xDS configured before, or that leaves its security to the control plane, does
// not use DNS.
func (p *awaitingBootstrap) startDNS(notConfigured error) error {
	switch {
	case p.record.Mode() == channels.XDS:
		return notConfigured
	case grpcbridge.UsesXDS(p.opts.DialCreds, p.opts.CredsBundle):
		return fmt.Errorf("%w; %w", notConfigured, errCredentials)
	}
	if err := p.dns.start(notConfigured.Error()); err != nil {
		return fmt.Errorf("%w; DNS cannot resolve the target either: %v", notConfigured, err)
	}
	noBootstrap.Do(func() {
		logger.Errorf("%s is resolved by DNS: no bootstrap is set; its RPCs go around the mesh, as do those of other channels without a bootstrap, "+
			"each of which has a warning: %v", p.channel.ClientConn().Target(), notConfigured)
	})
	return nil
}

// noBootstrap is for the error of the first channel that has no bootstrap and is resolved by DNS: its RPCs may succeed, and gRPC's
// log has no warnings by default.
var noBootstrap sync.Once

// ResolveNow implements resolver.Resolver.
func (p *awaitingBootstrap) ResolveNow(o grpcresolver.ResolveNowOptions) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
	case p.resolver != nil:
		p.resolver.ResolveNow(o)
	default:
		p.dns.resolveNow(o)
		if time.Since(p.read) >= minReread {
			p.timer.Reset(0)
		}
	}
}

// Close implements resolver.Resolver.
func (p *awaitingBootstrap) Close() {
	p.mu.Lock()
	p.closed = true
	p.timer.Stop()
	r := p.resolver
	p.mu.Unlock()
	if r != nil {
		r.Close()
		return
	}
	p.dns.close()
	p.channel.Detach()
}
