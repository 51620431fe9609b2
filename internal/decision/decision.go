// Package decision holds the Decision: what one RPC was given when its route
// was chosen, and how the picker gets at it.
//
// It is not for routing: configselector makes a Decision, the balancer's root
// picker reads it, and nothing in between looks inside. The Decision travels
// as the RPC's context, because a picker sees nothing else of the RPC.
package decision

import "context"

// Decision is what one RPC was given by one snapshot of the configuration. It
// is itself the context of the RPC, so that handing it down costs the RPC
// this one allocation and no other.
//
// A Decision is immutable once the RPC has been passed on to gRPC. A picker
// that finds it out of date asks for another one and leaves this one alone.
type Decision struct {
	// Context is the context the application gave, deadline and outgoing
	// metadata included.
	context.Context

	// Channel identifies the channel that decided. A context may be reused
	// for an RPC on another channel (credentials and stats handlers do), to
	// which this Decision means nothing.
	Channel any
	// Version is the version of the snapshot the Decision was made from.
	// Versions grow over the whole process, never only within a channel, so
	// that they stay comparable when a channel was idle in between.
	Version uint64
	// Method is the full method, "/package.Service/Method".
	Method string
	// Cluster is the name of the cluster that the RPC goes to.
	Cluster string
}

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
