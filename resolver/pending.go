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
// growing intervals of at most maxReread; sooner if gRPC asks for another resolution, but
// no more often than every minReread.
const (
	minReread = 250 * time.Millisecond
	maxReread = 10 * time.Second
)

// pending is the resolver of a channel for which the environment has no bootstrap, or
// none that it can use. DNS resolves the target, or RPCs fail, until there is one: then
// the xdsResolver takes over that a new channel would have had from the start. A timer,
// which Close ends, is all that runs meanwhile.
type pending struct {
	*request

	// mu is held while the environment is read and what follows from it is done. gRPC is
	// called with it, and calls ResolveNow and Close on a goroutine that it does not wait
	// for.
	mu     sync.Mutex
	closed bool
	// resolver is what has taken over, nil if nothing has.
	resolver *xdsResolver
	timer    *time.Timer
	interval time.Duration
	read     time.Time // when the environment was read last
	byDNS    bool
	said     string // the error that was reported last
}

// newPending returns the resolver for a request that failed with err.
func newPending(q *request, err error) *pending {
	p := &pending{request: q, interval: minReread, read: time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cope(err)
	p.timer = time.AfterFunc(p.interval, p.reread)
	return p
}

func (p *pending) reread() {
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
	p.cope(err)
	p.interval = min(2*p.interval, maxReread)
	p.timer.Reset(p.interval)
}

// cope has DNS resolve the target, or RPCs fail, because of err. DNS goes on if the
// environment has come to a bootstrap with faults.
func (p *pending) cope(err error) {
	if errors.Is(err, bootstrap.ErrNotConfigured) {
		if err = p.goByDNS(err); err == nil {
			p.byDNS, p.said = true, ""
			return
		}
	}
	err = p.failure(err)
	if err.Error() == p.said {
		return
	}
	p.said = err.Error()
	if p.byDNS {
		logger.Warningf("%s: stays with DNS: %v", p.channel.ClientConn().Target(), err)
		return
	}
	logger.Warningf("%s: no configuration: %v", p.channel.ClientConn().Target(), err)
	if p.record.Mode() == channels.DNS { // It was so before it was idle.
		p.record.SetMode(channels.Undecided, err.Error())
	}
	p.record.SetReason(err.Error())
	p.cc.ReportError(err)
	p.channel.Fail(err)
}

// goByDNS starts DNS for a channel in a process that has no bootstrap, for which
// notConfigured is the error. A channel that xDS configured before, or that leaves its
// security to the control plane, is not for DNS.
func (p *pending) goByDNS(notConfigured error) error {
	switch {
	case p.record.Mode() == channels.XDS:
		return notConfigured
	case grpcbridge.UsesXDS(p.opts.DialCreds, p.opts.CredsBundle):
		return fmt.Errorf("%w; %w", notConfigured, errCredentials)
	}
	if err := p.dns.start(notConfigured.Error()); err != nil {
		return fmt.Errorf("%w; DNS cannot resolve the target either: %v", notConfigured, err)
	}
	return nil
}

// ResolveNow implements resolver.Resolver.
func (p *pending) ResolveNow(o grpcresolver.ResolveNowOptions) {
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
func (p *pending) Close() {
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
