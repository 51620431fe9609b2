// Package decision holds the Decision: what one RPC was given when its route
// was chosen, and how the picker gets at it.
//
// It is not for routing: configselector makes a Decision, the balancer's root
// picker reads it, and nothing in between looks inside. The Decision travels
// as the RPC's context, because a picker sees nothing else of the RPC.
package decision

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/httpfilter"
)

// Decision is what one RPC was given by one snapshot of the configuration. It
// is itself the context of the RPC, so that handing it down costs the RPC
// this one allocation and no other.
//
// A Decision is immutable once the RPC has been passed on to gRPC. A picker
// that finds it out of date asks for another one and leaves this one alone.
type Decision struct {
	// Context is the context the RPC has behind the HTTP filters, deadline and
	// outgoing metadata included.
	context.Context

	// Channel identifies the channel that decided. A context may be reused
	// for an RPC on another channel (credentials and stats handlers do), to
	// which this Decision means nothing.
	Channel *grpc.ClientConn
	// Version is the version of the snapshot the Decision was made from.
	// Versions grow over the whole process, never only within a channel, so
	// that they stay comparable when a channel was idle in between.
	Version uint64
	// Method is the full method that the application called,
	// "/package.Service/Method".
	Method string
	// Cluster is the name of the cluster that the RPC goes to.
	Cluster string
	// Extra is what only some RPCs are given. nil: none of it.
	Extra *Extra

	hash atomic.Uint64 // see Hash; not in use if there is an Extra
}

// Extra is what an RPC was given beyond a cluster.
type Extra struct {
	// RPC knows the RPC as the application made it.
	RPC RPC
	// WireMethod is the method that gRPC is given, which differs from
	// Decision.Method after a rewrite.
	WireMethod string
	// Authority is the ":authority" of the RPC, for endpoints without hostname if
	// AutoHost is set. Empty: that of the channel.
	Authority string
	// AutoHost asks the picker to set ":authority" to the hostname of the
	// endpoint that it picks, if that has one (gRFC A81); see AuthorityFor.
	// gRPC keeps to grpc.CallAuthority if the application has used that.
	AutoHost bool
	// HostOverride is the endpoint that a filter asks the picker for (gRFC A55).
	// nil: none does, and none wants to know which one it is.
	HostOverride *httpfilter.HostOverride
	// Pinned says that it was not the route that chose the cluster, so that no
	// other route may choose another one.
	Pinned bool

	dropped atomic.Bool
	hash    atomic.Uint64 // see Decision.Hash; the attempts of an RPC share it
}

// RPC is an RPC as the application made it, before filters and the route's
// edits.
type RPC interface {
	// Origin returns what the RPC is routed by, beside its method: its context
	// and the headers that do not come from there.
	Origin() (ctx context.Context, authority, contentType string)
	// Hash computes the hash of the RPC from its route's hash policies (gRFC
	// A42). It reports false if they give none.
	Hash() (hash uint64, ok bool)
}

// WireMethod returns the method that gRPC is given.
func (d *Decision) WireMethod() string {
	if d.Extra != nil && d.Extra.WireMethod != "" {
		return d.Extra.WireMethod
	}
	return d.Method
}

// Copy returns a Decision for another attempt or a copy of the RPC. It shares
// the Extra, and with it the hash.
func (d *Decision) Copy() *Decision {
	return &Decision{
		Context: d.Context, Channel: d.Channel, Version: d.Version,
		Method: d.Method, Cluster: d.Cluster, Extra: d.Extra,
	}
}

// AuthorityFor returns the ":authority" that the picker is to set, with
// balancer.PickResult.Metadata, for an RPC to an endpoint with the given
// hostname (gRFC A81), which may be empty. It returns "" if it is to set none.
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

// Hash returns the hash of the RPC (gRFC A42): that of the route's hash
// policies, or else a random number. It stays the same for all picks and all
// attempts of the RPC. It is made at the first call, so that RPCs to clusters
// that do not hash pay nothing.
func (d *Decision) Hash() uint64 {
	kept := &d.hash
	if d.Extra != nil {
		kept = &d.Extra.hash
	}
	// 0 stands for no hash. Policies that give 0 are asked at each pick, and
	// give it each time.
	if hash := kept.Load(); hash != 0 {
		return hash
	}
	hash, ok := d.policyHash()
	if !ok {
		hash = rand.Uint64()
	}
	if !kept.CompareAndSwap(0, hash) {
		return kept.Load() // Another pick was first.
	}
	return hash
}

func (d *Decision) policyHash() (hash uint64, ok bool) {
	if d.Extra == nil {
		return 0, false
	}
	return d.Extra.RPC.Hash()
}

// Drop is called by a picker that ends the RPC on purpose, so that it is not
// retried (gRFC A6, "Transparent Retries").
func (d *Decision) Drop() {
	if d.Extra != nil {
		d.Extra.dropped.Store(true)
	}
}

// Dropped reports whether Drop was called.
func (d *Decision) Dropped() bool { return d.Extra != nil && d.Extra.dropped.Load() }

type contextKey struct{}

// Value returns the Decision itself under the key of this package, and what
// the application's context holds under any other.
func (d *Decision) Value(key any) any {
	if _, ok := key.(contextKey); ok {
		return d
	}
	return d.Context.Value(key)
}

// FromContext returns the innermost Decision that ctx carries, or nil.
func FromContext(ctx context.Context) *Decision {
	d, _ := ctx.Value(contextKey{}).(*Decision)
	return d
}
