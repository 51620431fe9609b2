package resolver

import (
	"errors"
	"fmt"
	"net/url"
	"sync"

	"google.golang.org/grpc/balancer"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/dynxds/dynxds/dnsconfig"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// dnsSource configures a channel by DNS: addresses and the service config of gRFC A2. It and
// xDS share one resolver.ClientConn, which belongs to dnsSource from start until handOver or
// close.
type dnsSource struct {
	*request
	target grpcresolver.Target // of the scheme "dnsconfig"
	runner *dnsRunner

	// mu is held while gRPC takes an update of DNS, or the first of xDS, during which it
	// does not call back.
	mu       sync.Mutex
	phase    dnsPhase
	reason   string
	child    grpcresolver.Resolver
	resolved bool // gRPC has got addresses
}

type dnsPhase int

const (
	dnsOff     dnsPhase = iota // not needed so far
	dnsStarted                 // without a result
	dnsServing                 // RPCs run
	dnsOver                    // xDS has taken over, or the resolver is closed
)

func newDNSSource(q *request) *dnsSource {
	// The target's authority is one of xDS, not a DNS server.
	target := grpcresolver.Target{URL: url.URL{Scheme: dnsconfig.Scheme, Path: "/" + q.target.Endpoint()}}
	return &dnsSource{
		request: q, target: target,
		runner: &dnsRunner{channel: q.channel.ClientConn(), version: versions.Add(1), endpoint: target.Endpoint()},
	}
}

// start starts to configure the channel, for the given reason. It fails if DNS cannot resolve
// such a target.
func (d *dnsSource) start(reason string) error {
	d.mu.Lock()
	if d.phase != dnsOff {
		d.mu.Unlock()
		return nil
	}
	d.phase, d.reason = dnsStarted, reason
	d.mu.Unlock()

	// Without the lock, as Build may report addresses.
	child, err := dnsconfig.NewBuilder(dnsconfig.Options{OnResult: d.record.SetDNS}).Build(d.target, dnsClientConn{d}, d.opts)

	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.phase = dnsOff
		return err
	}
	d.child = child
	d.record.SetMode(channels.DNS, reason)
	return nil
}

// handOver ends the source. update gives the channel its first update of xDS, after the last
// one of DNS, and returns the Runner for it.
func (d *dnsSource) handOver(reason string, update func() grpcbridge.Runner) {
	d.runner.stop()
	d.end(func() {
		d.record.SetMode(channels.XDS, reason)
		d.runner.handOverTo(update())
	})
}

func (d *dnsSource) close() { d.end(func() {}) }

func (d *dnsSource) end(last func()) {
	d.mu.Lock()
	child := d.child
	d.child, d.phase = nil, dnsOver
	last()
	d.mu.Unlock()
	// Without the lock, for which a concurrent update may wait.
	if child != nil {
		child.Close()
	}
}

// started reports whether DNS configures the channel, or is about to.
func (d *dnsSource) started() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.phase == dnsStarted || d.phase == dnsServing
}

func (d *dnsSource) resolveNow(o grpcresolver.ResolveNowOptions) {
	d.mu.Lock()
	child := d.child
	d.mu.Unlock()
	if child != nil {
		child.ResolveNow(o)
	}
}

// serve lets the channel's RPCs run. The caller holds d.mu, and has given gRPC the update of
// DNS, so that RPCs find its policy.
func (d *dnsSource) serve() {
	if d.phase != dnsStarted {
		return
	}
	d.phase = dnsServing
	d.runner.reason = d.reason
	d.record.SetMode(channels.DNS, d.reason)
	d.channel.Publish(d.runner)
}

// explain adds to an error of DNS why DNS is in use.
func (d *dnsSource) explain(err error) error {
	return fmt.Errorf("%w%s", err, askedDNS(d.target.Endpoint(), d.reason))
}

// askedDNS returns the suffix of errors of a channel that DNS resolves.
func askedDNS(endpoint, reason string) string {
	return fmt.Sprintf("; DNS was asked for %s because: %s", bounds.Quote(endpoint), reason)
}

var errNoAddress = errors.New("DNS has no address for the target")

// dnsClientConn is the resolver.ClientConn of the DNS resolver.
type dnsClientConn struct{ d *dnsSource }

// UpdateState implements resolver.ClientConn.
func (c dnsClientConn) UpdateState(s grpcresolver.State) error {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if c.d.phase == dnsOver {
		return nil
	}
	defer c.d.serve()
	if len(s.Addresses)+len(s.Endpoints) > 0 {
		c.d.resolved = true
		return c.d.cc.UpdateState(s)
	}
	// gRPC's own error for this does not say why DNS is in use. It is avoided unless there
	// is something else in the update.
	if c.d.resolved || s.ServiceConfig != nil {
		_ = c.d.cc.UpdateState(s)
	}
	c.d.cc.ReportError(c.d.explain(errNoAddress))
	return balancer.ErrBadResolverState
}

// ReportError implements resolver.ClientConn.
func (c dnsClientConn) ReportError(err error) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if c.d.phase == dnsOver {
		return
	}
	c.d.cc.ReportError(c.d.explain(err))
	c.d.serve()
}

// NewAddress implements resolver.ClientConn.
//
// Deprecated: resolvers call UpdateState.
func (c dnsClientConn) NewAddress(addresses []grpcresolver.Address) {
	_ = c.UpdateState(grpcresolver.State{Addresses: addresses})
}

// ParseServiceConfig implements resolver.ClientConn.
func (c dnsClientConn) ParseServiceConfig(text string) *serviceconfig.ParseResult {
	return c.d.cc.ParseServiceConfig(text)
}
