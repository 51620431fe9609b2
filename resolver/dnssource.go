package resolver

import (
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"

	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/dnsconfig"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// dnsSource configures a channel by DNS: addresses and the service config of gRFC A2. It is the
// resolver.ClientConn of the DNS resolver, its child, and the Runner of the channel's RPCs.
type dnsSource struct {
	*channelResolver
	grpcresolver.ClientConn // the channel's
	child                   grpcresolver.Resolver
	version                 uint64 // of its Decisions
	// because is what errors of RPCs end with: the name that DNS resolves, and why DNS does.
	because string

	// updates is held while gRPC takes an update of DNS. The child may report one while it is built: channelResolver.mu is
	// held then, but not later.
	updates sync.Mutex
	over    bool // xDS has taken over, or the resolver is closed

	// running counts unary RPCs until they end, and others until their stream is open.
	running atomic.Int64
	moving  atomic.Pointer[handOver] // nil until the channel moves to xDS
}

// newDNSSource starts to configure the channel, for the given reason. It fails if DNS cannot resolve
// such a target.
func newDNSSource(r *channelResolver, reason string) (*dnsSource, error) {
	// The target's authority is one of xDS, not a DNS server.
	target := grpcresolver.Target{URL: url.URL{Scheme: "dnsconfig", Path: "/" + r.target.Endpoint()}}
	because := fmt.Sprintf("; DNS was asked for %s because: %s", bounds.Quote(target.Endpoint()), reason)
	d := &dnsSource{channelResolver: r, ClientConn: r.cc, version: versions.Add(1), because: because}
	options := dnsconfig.Options{MinInterval: max(grpcbridge.MinResolutionInterval(), 1), OnResult: r.record.SetDNS}
	var err error
	if d.child, err = dnsconfig.NewBuilder(options).Build(target, d, r.opts); err != nil {
		return nil, err
	}
	r.record.SetMode(channels.DNS, reason)
	return d, nil
}

// close ends the source: gRPC gets no update of DNS any more.
func (d *dnsSource) close() {
	d.updates.Lock()
	d.over = true
	d.updates.Unlock()
	// Without the lock, for which a concurrent update may wait.
	d.child.Close()
}

// UpdateState implements resolver.ClientConn. RPCs run after the first update, so that they find the policy of DNS.
func (d *dnsSource) UpdateState(s grpcresolver.State) error {
	d.updates.Lock()
	defer d.updates.Unlock()
	if d.over {
		return nil
	}
	defer d.channel.Publish(d)
	return d.ClientConn.UpdateState(s)
}

// ReportError implements resolver.ClientConn.
func (d *dnsSource) ReportError(err error) {
	d.updates.Lock()
	defer d.updates.Unlock()
	if d.over {
		return
	}
	d.ClientConn.ReportError(err)
	d.channel.Publish(d)
}
