// Package rpctrace carries a caller's hooks in the context of an RPC; see dynxds.Trace.
//
// The interceptors, the configuration selector, the router and the pickers call the hooks; the
// package itself calls none.
package rpctrace

import (
	"context"
	"time"
)

// Trace is a set of hooks; see dynxds.Trace, which documents when each is called.
type Trace struct {
	WaitedForConfig func(ConfigWait)
	Routed          func(Route)
	FilterStarted   func(Filter)
	FilterEnded     func(Filter)
	FilterDecided   func(Filter)
	Picked          func(Pick)
	AttemptEnded    func(Attempt)
	Retried         func(Retry)
	Mirrored        func(Mirror)

	// filters, in a Trace of a context: one of its hooks for the start and the end of filters does something.
	filters bool
	// observer of the RPC, or nil; see Observed.
	observer Observer
}

// SeesFilters reports whether a Trace of a context has hooks for the start or the end of HTTP filters, which are
// otherwise left as they are.
func SeesFilters(t *Trace) bool { return t.filters }

// ConfigWait is an RPC's wait for the configuration of its channel.
type ConfigWait struct {
	Target   string        // of the channel, as it was dialled
	Duration time.Duration // of the wait
	Err      error         // what the RPC fails with, or nil: there is a configuration
}

// Route is where an RPC was routed.
type Route struct {
	Method      string // "/package.Service/Method", as the application called it
	RouteConfig string // the name of the RouteConfiguration
	VirtualHost string // its name in the RouteConfiguration
	Name        string // Route.name; often empty
	Match       string // the path that the route matches; empty if no route matches
	Cluster     string // the cluster drawn; empty if the route answers the RPC itself
	Err         error  // what the RPC fails with, or nil
}

// Filter is an HTTP filter's handling of an RPC.
type Filter struct {
	Name     string // HttpFilter.name
	PassedOn bool   // the filter has passed the RPC on; false in FilterStarted
	Err      error  // what the filter or a later one failed the RPC with, or why it was decided so, or nil
	Duration time.Duration
	Decision string // in FilterDecided only
}

// Pick is the choice of an endpoint for an attempt.
type Pick struct {
	Cluster               string // of an aggregate cluster, the member that has the endpoint
	Region, Zone, SubZone string // the locality of the endpoint
	Priority              uint32 // of the locality; 0 is the most preferred
	Endpoint              string // "host:port"
	Reason                Reason // why there is no endpoint, as one of a few words
	Err                   error  // why there is no endpoint, or nil
}

// Reason is why a pick found no endpoint. There are few, so that metrics can have them as a label.
type Reason = string

// The reasons; see dynxds.TracePick, which documents them.
const (
	Found       Reason = "" // no reason: an endpoint was picked
	Dropped     Reason = "dropped"
	MaxRequests Reason = "max_requests"
	MaxRetries  Reason = "max_retries"
	Unreachable Reason = "unreachable"
	Unusable    Reason = "unusable"
	NoCluster   Reason = "no_cluster"
	NoConfig    Reason = "no_config"
)

// Attempt is an attempt of an RPC that has ended.
type Attempt struct {
	Number  int    // 1 is the first
	Cluster string // that it was sent to
	Err     error  // its status, or nil: OK
}

// Retry is a retry that is about to begin.
type Retry struct {
	Attempt int           // the number of the next attempt; 2 is the first retry
	Delay   time.Duration // until it begins
	Err     error         // the status of the attempt before; nil: it goes on
}

// Mirror is a mirror of an RPC.
type Mirror struct {
	Cluster string // that the mirror goes to
	Dropped bool   // the mirror was not sent
}

type contextKey struct{}

// With returns a context whose RPCs call the hooks of t, and after each of them that of a Trace
// that ctx carries already.
func With(ctx context.Context, t *Trace) context.Context {
	if t == nil {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, joined(t, FromContext(ctx)))
}

// joined returns a Trace, all of whose hooks are set, that calls those of t and then those of
// old, which may be nil.
func joined(t, old *Trace) *Trace {
	if old == nil {
		old = new(Trace)
	}
	return &Trace{
		WaitedForConfig: both(t.WaitedForConfig, old.WaitedForConfig),
		Routed:          both(t.Routed, old.Routed),
		FilterStarted:   both(t.FilterStarted, old.FilterStarted),
		FilterEnded:     both(t.FilterEnded, old.FilterEnded),
		FilterDecided:   both(t.FilterDecided, old.FilterDecided),
		Picked:          both(t.Picked, old.Picked),
		AttemptEnded:    both(t.AttemptEnded, old.AttemptEnded),
		Retried:         both(t.Retried, old.Retried),
		Mirrored:        both(t.Mirrored, old.Mirrored),
		filters:         t.FilterStarted != nil || t.FilterEnded != nil || old.filters,
	}
}

// Observer counts one RPC for the metrics of its channel. Unlike a Trace it is told of the RPC's end. Its methods are safe
// for concurrent use.
type Observer interface {
	Routed(Route)
	Picked(Pick)
	// Resending is called when a retry or a hedge is about to begin. count is called once the RPC is decided, if the
	// attempt was sent by then. (Trace.Retried tells of attempts that may never begin.)
	Resending() (count func())
	// Ended is called once, before the application learns of the end of a stream.
	Ended(err error)
}

// Observed returns the hooks for an RPC that o observes: those of o, and then those of t, which may be nil.
func Observed(o Observer, t *Trace) *Trace {
	all := joined(&Trace{Routed: o.Routed, Picked: o.Picked}, t)
	all.observer = o
	return all
}

// Resending calls Observer.Resending of the RPC with the hooks t, which may be nil.
func Resending(t *Trace) (count func()) {
	if t == nil || t.observer == nil {
		return func() {}
	}
	return t.observer.Resending()
}

// Ended calls Observer.Ended of the RPC with the hooks t, which may be nil.
func Ended(t *Trace, err error) {
	if t != nil && t.observer != nil {
		t.observer.Ended(err)
	}
}

// both returns a hook, never nil, that calls those of first and second that are not nil.
func both[T any](first, second func(T)) func(T) {
	switch {
	case first == nil && second == nil:
		return func(T) {}
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(event T) {
		first(event)
		second(event)
	}
}

// FromContext returns the Trace that ctx carries, all of whose hooks are set, or nil.
func FromContext(ctx context.Context) *Trace {
	t, _ := ctx.Value(contextKey{}).(*Trace)
	return t
}
