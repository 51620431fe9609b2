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
)

// dnsSource configures a channel by DNS: addresses and the service config of gRFC A2. It is the
// resolver.ClientConn of the DNS resolver, its child.
type dnsSource struct {
	*channelResolver
	runner *dnsRunner
	child  grpcresolver.Resolver

	// updates is held while gRPC takes an update of DNS. The child may report one while it is built: channelResolver.mu is
	// held then, but not later.
	updates  sync.Mutex
	phase    dnsPhase
	resolved bool // gRPC has got addresses
}

type dnsPhase int

const (
	dnsStarted dnsPhase = iota // without a result
	dnsServing                 // RPCs run
	dnsOver                    // xDS has taken over, or the resolver is closed
)

// newDNSSource starts to configure the channel, for the given reason. It fails if DNS cannot resolve
// such a target.
func newDNSSource(r *channelResolver, reason string) (*dnsSource, error) {
	// The target's authority is one of xDS, not a DNS server.
	target := grpcresolver.Target{URL: url.URL{Scheme: "dnsconfig", Path: "/" + r.target.Endpoint()}}
	because := fmt.Sprintf("; DNS was asked for %s because: %s", bounds.Quote(target.Endpoint()), reason)
	d := &dnsSource{
		channelResolver: r,
		runner:          &dnsRunner{channel: r.channel.ClientConn(), version: versions.Add(1), because: because},
	}
	var err error
	if d.child, err = dnsconfig.NewBuilder(dnsconfig.Options{OnResult: r.record.SetDNS}).Build(target, d, r.opts); err != nil {
		return nil, err
	}
	r.record.SetMode(channels.DNS, reason)
	return d, nil
}

// close ends the source: gRPC gets no update of DNS any more.
func (d *dnsSource) close() {
	d.updates.Lock()
	d.phase = dnsOver
	d.updates.Unlock()
	// Without the lock, for which a concurrent update may wait.
	d.child.Close()
}

// serve lets the channel's RPCs run. The caller holds d.updates, and has given gRPC the update of
// DNS, so that RPCs find its policy.
func (d *dnsSource) serve() {
	if d.phase != dnsStarted {
		return
	}
	d.phase = dnsServing
	d.channel.Publish(d.runner)
}

// explain adds to an error of DNS why DNS is in use.
func (d *dnsSource) explain(err error) error { return fmt.Errorf("%w%s", err, d.runner.because) }

var errNoAddress = errors.New("DNS has no address for the target")

// UpdateState implements resolver.ClientConn.
func (d *dnsSource) UpdateState(s grpcresolver.State) error {
	d.updates.Lock()
	defer d.updates.Unlock()
	if d.phase == dnsOver {
		return nil
	}
	defer d.serve()
	if len(s.Addresses)+len(s.Endpoints) > 0 {
		d.resolved = true
		return d.cc.UpdateState(s)
	}
	// gRPC's own error for this does not say why DNS is in use. It is avoided unless there
	// is something else in the update.
	if d.resolved || s.ServiceConfig != nil {
		_ = d.cc.UpdateState(s)
	}
	d.cc.ReportError(d.explain(errNoAddress))
	return balancer.ErrBadResolverState
}

// ReportError implements resolver.ClientConn.
func (d *dnsSource) ReportError(err error) {
	d.updates.Lock()
	defer d.updates.Unlock()
	if d.phase == dnsOver {
		return
	}
	d.cc.ReportError(d.explain(err))
	d.serve()
}

// NewAddress implements resolver.ClientConn.
//
// Deprecated: resolvers call UpdateState.
func (d *dnsSource) NewAddress(addresses []grpcresolver.Address) {
	_ = d.UpdateState(grpcresolver.State{Addresses: addresses})
}

// ParseServiceConfig implements resolver.ClientConn.
func (d *dnsSource) ParseServiceConfig(text string) *serviceconfig.ParseResult {
	return d.cc.ParseServiceConfig(text)
}
