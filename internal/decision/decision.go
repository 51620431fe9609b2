// Package decision holds the Decision: what one RPC was given when its route
// was chosen, and how the picker gets at it.
//
// It is not for routing: configselector makes a Decision, the balancer's root
// picker reads it, and nothing in between looks inside. The Decision travels
// as the RPC's context, because a picker sees nothing else of the RPC.
package decision

import (
	"context"
	"hash/maphash"
	"sync/atomic"
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
	Channel any
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
}

// Extra is what an RPC was given beyond a cluster.
type Extra struct {
	// Origin is the context of the RPC before filters and the route's header
	// edits, by which it is routed again if need be.
	Origin context.Context
	// WireMethod is the method that gRPC is given, which differs from
	// Decision.Method after a rewrite.
	WireMethod string
	// Authority and ContentType are the headers that the RPC was routed by, if
	// they are not those of every RPC of the channel.
	Authority, ContentType string
	// Pinned says that it was not the route that chose the cluster, so that no
	// other route may choose another one.
	Pinned bool
	// AutoHost asks the picker to set ":authority" to the hostname of the
	// endpoint that it picks, if that has one (gRFC A81); see AuthorityFor.
	// gRPC keeps to grpc.CallAuthority if the application has used that.
	AutoHost bool
	// AutoHostElse is the ":authority" to set for an endpoint without hostname.
	// Empty: none.
	AutoHostElse string
	// Hasher computes the hash of the RPC when somebody asks for it (gRFC
	// A42). nil: the route has no hash policy.
	Hasher Hasher

	hash    atomic.Uint64
	hashed  atomic.Bool
	dropped atomic.Bool
}

// Hasher computes the hash of an RPC from its route's hash policies. It
// reports false if they give none.
type Hasher interface {
	Hash(d *Decision) (hash uint64, ok bool)
}

// Origin returns the context that the RPC was routed by.
func (d *Decision) Origin() context.Context {
	if d.Extra != nil && d.Extra.Origin != nil {
		return d.Extra.Origin
	}
	return d.Context
}

// WireMethod returns the method that gRPC is given.
func (d *Decision) WireMethod() string {
	if d.Extra != nil && d.Extra.WireMethod != "" {
		return d.Extra.WireMethod
	}
	return d.Method
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
		return d.Extra.AutoHostElse
	}
}

var seed = maphash.MakeSeed()

// Hash returns the hash of the RPC (gRFC A42): that of the route's hash
// policies, or else a random number. It stays the same for all attempts of the
// RPC. It is computed at the first call, so that RPCs to clusters that do not
// hash pay nothing.
func (d *Decision) Hash() uint64 {
	e := d.Extra
	if e == nil {
		return maphash.Comparable(seed, d)
	}
	if !e.hashed.Load() {
		hash, ok := uint64(0), false
		if e.Hasher != nil {
			hash, ok = e.Hasher.Hash(d)
		}
		if !ok {
			hash = maphash.Comparable(seed, e)
		}
		// Two picks at the same time compute the same.
		e.hash.Store(hash)
		e.hashed.Store(true)
	}
	return e.hash.Load()
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
