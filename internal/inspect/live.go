package inspect

import (
	"context"
	"sync/atomic"
)

// Live leads from the resolver of a channel to the balancer that it configures. The zero value
// leads nowhere, and so does nil. It is safe for concurrent use.
type Live struct{ balancer atomic.Pointer[Balancer] }

// Balancer describes a cluster of a channel. It reports false if it does not have it, or if
// ctx ends first.
type Balancer func(ctx context.Context, name string) (Cluster, bool)

// Serve makes b the one that is asked, until stop is called or another one takes its place.
func (l *Live) Serve(b Balancer) (stop func()) {
	if l == nil {
		return func() {}
	}
	l.balancer.Store(&b)
	return func() { l.balancer.CompareAndSwap(&b, nil) }
}

// Cluster asks the balancer. Without one it reports false.
func (l *Live) Cluster(ctx context.Context, name string) (Cluster, bool) {
	if l == nil {
		return Cluster{}, false
	}
	b := l.balancer.Load()
	if b == nil {
		return Cluster{}, false
	}
	return (*b)(ctx, name)
}
