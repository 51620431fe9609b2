// Package decision carries what was decided for an RPC when its route was chosen to the
// picker. It does not route: configselector makes a Decision, the balancer's root picker
// reads it. The Decision travels as the RPC's context, because a picker sees nothing else of
// the RPC.
package decision

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// Decision is what one version of the configuration decided for one RPC. It is itself the
// context of the RPC, so that it costs one allocation. It is immutable once the RPC was
// passed to gRPC: a picker that finds it outdated asks for another one.
type Decision struct {
	// Context is the context of the RPC after the HTTP filters, with deadline and outgoing
	// metadata.
	context.Context

	// Channel identifies the channel that decided. Credentials and stats handlers may use
	// the context for an RPC on another channel, for which the Decision does not hold.
	Channel *grpc.ClientConn
	// Version is the version of the configuration. Versions grow over the whole process, so
	// that they stay comparable after a channel was idle.
	Version uint64
	// Method is the full method that the application called,
	// "/package.Service/Method".
	Method  string
	Cluster string // the cluster that the RPC goes to
	Extra   *Extra // what only some RPCs have, or nil

	hash atomic.Uint64 // see Hash
}

// Extra has the decisions for an RPC beyond its cluster. An attempt has an Extra of its own if the picker needs more than the RPC's:
// each retry, and each attempt of a route with per-try timeouts or hedging; see ForAttempt.
type Extra struct {
	// RPC is the RPC as the application made it.
	RPC RPC
	// WireMethod is the method on the wire: Decision.Method, or its rewrite.
	WireMethod string
	// Authority is the ":authority" of the RPC; with AutoHost, that for endpoints without a
	// hostname. Empty: that of the channel.
	Authority string
	// HostOverride is the endpoint that a filter asks for (gRFC A55), or nil.
	HostOverride *httpfilter.HostOverride
	// Trace has the caller's hooks for the RPC, or is nil. Mirrors do not have it.
	Trace *rpctrace.Trace
	// AutoHost asks the picker to set ":authority" to the hostname of the endpoint, if it
	// has one (gRFC A81); see AuthorityFor. grpc.CallAuthority takes precedence.
	AutoHost bool
	// Pinned reports that a filter or mirror policy chose the cluster, so that Reselect
	// keeps it.
	Pinned bool
	// Retry reports that the RPC has been attempted before.
	Retry bool
	// undecided says that the attempt has not won yet. The host is only told of an attempt that has.
	undecided atomic.Bool
	// Hosts, if not nil, are the endpoints that a retry avoids.
	Hosts *Hosts
	// Picked, if not nil, is called when the picker has found an endpoint for the attempt,
	// again if gRPC picks for it again.
	Picked func()

	failure atomic.Pointer[rpctrace.Reason] // see Fail
	host    atomic.Pointer[string]
	// metadata is that of the cluster that was picked last; see SetMetadata.
	metadata atomic.Pointer[httpfilter.Metadata]
}

// RPC is an RPC as the application made it, before filters and the route's edits.
type RPC interface {
	// Origin returns what the RPC is routed by, beside its method: its context and the
	// headers that are not in the context.
	Origin() (ctx context.Context, authority, contentType string)
	// Hash computes the hash by the route's hash policies (gRFC A42). It reports false if
	// they yield none.
	Hash() (hash uint64, ok bool)
}

// WireMethod returns the method on the wire.
func (d *Decision) WireMethod() string {
	if d.Extra != nil && d.Extra.WireMethod != "" {
		return d.Extra.WireMethod
	}
	return d.Method
}

// ForAttempt returns a Decision for an attempt, with an Extra of its own, and with the hash of d, which has an Extra. The fields may be
// changed before gRPC gets the attempt.
func (d *Decision) ForAttempt() *Decision {
	both := new(struct {
		decision Decision
		extra    Extra
	})
	c, own, e := &both.decision, &both.extra, d.Extra
	c.Context, c.Channel, c.Version, c.Method, c.Cluster, c.Extra = d.Context, d.Channel, d.Version, d.Method, d.Cluster, own
	c.hash.Store(d.Hash())
	own.RPC, own.WireMethod, own.Authority, own.HostOverride = e.RPC, e.WireMethod, e.Authority, e.HostOverride
	own.Trace, own.AutoHost, own.Pinned = e.Trace, e.AutoHost, e.Pinned
	own.undecided.Store(true)
	return c
}

// Retry reports whether the RPC has been attempted before. d may be nil.
func (d *Decision) Retry() bool { return d != nil && d.Extra != nil && d.Extra.Retry }

// Trace returns the caller's hooks for the RPC, or nil. d may be nil.
func (d *Decision) Trace() *rpctrace.Trace {
	if d == nil || d.Extra == nil {
		return nil
	}
	return d.Extra.Trace
}

// AuthorityFor returns the ":authority" that the picker has to set, in
// balancer.PickResult.Metadata, for an endpoint with the given hostname, which may be empty
// (gRFC A81). "": none.
func (d *Decision) AuthorityFor(hostname string) string {
	switch {
	case d.Extra == nil || !d.Extra.AutoHost:
		return ""
	case hostname != "":
		return hostname
	default:
		return d.Extra.Authority
	}
}

// Hash returns the hash of the RPC (gRFC A42): that of the route's hash policies, or else a
// random number. All picks and attempts of the RPC get the same. It is computed by the
// first call, so that RPCs to clusters that do not hash pay nothing.
func (d *Decision) Hash() uint64 {
	// 0 stands for no hash. A hash of 0 is computed by each pick.
	if hash := d.hash.Load(); hash != 0 {
		return hash
	}
	var hash uint64
	ok := false
	if d.Extra != nil && d.Extra.RPC != nil {
		hash, ok = d.Extra.RPC.Hash()
	}
	if !ok {
		hash = rand.Uint64()
	}
	if !d.hash.CompareAndSwap(0, hash) {
		return d.hash.Load() // Another pick was first.
	}
	return hash
}

// Fail is called by a picker that has no endpoint for the RPC, with the reason. An RPC that
// it drops, for Dropped, MaxRequests or MaxRetries, is not retried (gRFC A6, "Transparent
// Retries"). d may be nil.
func (d *Decision) Fail(why rpctrace.Reason) {
	if d != nil && d.Extra != nil {
		d.Extra.failure.Store(&why)
	}
}

// Failure returns the reason of the last Fail, or Found. Sent forgets it.
func (d *Decision) Failure() rpctrace.Reason {
	if d.Extra != nil {
		if why := d.Extra.failure.Load(); why != nil {
			return *why
		}
	}
	return rpctrace.Found
}

// Dropped reports whether a picker has dropped the RPC.
func (d *Decision) Dropped() bool {
	why := d.Failure()
	return why == rpctrace.Dropped || why == rpctrace.MaxRequests || why == rpctrace.MaxRetries
}

// Sent is called by the picker of a cluster that sends the attempt to the endpoint at the address.
// d may be nil.
func (d *Decision) Sent(address string) {
	if d == nil || d.Extra == nil {
		return
	}
	e := d.Extra
	if e.failure.Load() != nil {
		e.failure.Store(nil)
	}
	if e.Hosts != nil {
		e.Hosts.add(address)
	}
	if e.Picked != nil {
		e.Picked()
	}
}

// SetHost is called by the picker with the addresses of the endpoint that it has found for an RPC
// with a HostOverride. It is that of the RPC once the attempt has won.
func (d *Decision) SetHost(addresses *string) {
	e := d.Extra
	if e.host.Store(addresses); !e.undecided.Load() {
		e.HostOverride.SetHost(addresses)
	}
}

// Won is called when the RPC, which may have several attempts, is decided to be this one.
func (d *Decision) Won() {
	e := d.Extra
	e.undecided.Store(false)
	if host := e.host.Load(); host != nil {
		e.HostOverride.SetHost(host)
	}
}

// SetMetadata is called by the picker of a cluster, before it picks, with the metadata of the Cluster.
// d has an Extra.
func (d *Decision) SetMetadata(m *httpfilter.Metadata) {
	// Most clusters have none, so that nothing has to be stored.
	if p := &d.Extra.metadata; len(*m) > 0 || p.Load() != nil {
		p.Store(m)
	}
}

type contextKey struct{}

// Value returns the Decision itself for the key of this package, what is for filters, and the value of the
// application's context for any other key.
func (d *Decision) Value(key any) any {
	switch key.(type) {
	case contextKey:
		return d
	case httpfilter.MetadataKey:
		if d.Extra == nil {
			return nil
		}
		return d.Extra.metadata.Load()
	default:
		return d.Context.Value(key)
	}
}

// FromContext returns the innermost Decision that ctx carries, or nil.
func FromContext(ctx context.Context) *Decision {
	d, _ := ctx.Value(contextKey{}).(*Decision)
	return d
}
