package grpcbridge

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/bounds"
)

// Runner carries out the RPCs of a channel by one configuration. It is
// immutable and safe for concurrent use. It calls Finish for an RPC that it
// ends without having called the invoker or streamer. It may get an RPC after another one, or a
// failure, was published in its place, or the Channel was detached.
type Runner interface {
	Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts []grpc.CallOption) error
	Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts []grpc.CallOption) (grpc.ClientStream, error)
}

// state is one state of a Channel, at first without a configuration. It is immutable.
type state struct {
	runner Runner // it runs RPCs; nil: they wait
	// err is why there is no configuration, if that is known. RPCs fail with it unless they wait for ready.
	err error
	// detached: the resolver is closed, since the channel is idle or closed.
	// A detached Channel stays detached; RPCs look for its successor.
	detached bool
	// replaced is closed when another state has taken the place of this.
	replaced chan struct{}
}

// Channel is where the resolver of a gRPC channel and the channel's RPCs
// meet. It lives as long as the resolver does, from one idle period of the
// channel to the next.
type Channel struct {
	cc      *grpc.ClientConn
	reached bool // by Install
	state   atomic.Pointer[state]

	// Guarded by registry.mu.
	attached bool // a resolver owns the Channel, or did
	waiters  int  // RPCs that wait here
}

// registry holds the Channels that are not detached, by *grpc.ClientConn. RPCs read it without the lock.
var registry struct {
	mu       sync.Mutex
	channels sync.Map
}

// channelLocked returns the Channel of cc, a new one if there is none.
func channelLocked(cc *grpc.ClientConn) *Channel {
	ch := lookup(cc)
	if ch == nil {
		ch = &Channel{cc: cc, reached: reached(cc)}
		ch.state.Store(&state{replaced: make(chan struct{})})
		registry.channels.Store(cc, ch)
	}
	return ch
}

// Attach finds the channel that rcc belongs to and makes the caller, its
// resolver, the owner of the channel's Channel. It must be followed by Detach
// when the resolver is closed.
func Attach(rcc resolver.ClientConn) (*Channel, error) {
	cc := clientConnBehind(rcc)
	if cc == nil {
		return nil, fmt.Errorf("dynxds: found no *grpc.ClientConn behind the resolver.ClientConn of type %T that the resolver was built with (gRPC %s); "+
			"dynxds routes RPCs in the channel's interceptors, and so resolves for channels of grpc.NewClient only (docs/tasks/beside-grpc-go.md)", rcc, grpc.Version)
	}
	registry.mu.Lock()
	defer registry.mu.Unlock()
	ch := channelLocked(cc)
	ch.attached = true
	return ch, nil
}

// ClientConn returns the gRPC channel. It serves as the channel's identity.
func (ch *Channel) ClientConn() *grpc.ClientConn { return ch.cc }

// Awaited reports whether RPCs wait for a configuration. If none does, it is the
// application that woke the channel, with ClientConn.Connect or a blocking
// dial.
func (ch *Channel) Awaited() bool {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	return ch.waiters > 0
}

// Publish has r run all RPCs from now on, including those that wait.
func (ch *Channel) Publish(r Runner) { ch.replace(&state{runner: r}) }

// Fail makes RPCs fail with UNAVAILABLE and the text of err, including those that wait,
// unless they are wait-for-ready RPCs. The text is cut at bounds.RPCText.
func (ch *Channel) Fail(err error) {
	ch.replace(&state{err: bounds.Error(err, bounds.RPCText)})
}

// Detach ends the Channel. RPCs that wait go on to wait for the channel's
// next resolver, or end if the channel was closed.
func (ch *Channel) Detach() {
	registry.channels.CompareAndDelete(ch.cc, ch)
	ch.replace(&state{detached: true})
}

func (ch *Channel) replace(s *state) {
	s.replaced = make(chan struct{})
	for {
		old := ch.state.Load()
		if old.detached {
			return
		}
		if ch.state.CompareAndSwap(old, s) {
			close(old.replaced)
			return
		}
	}
}

// join returns the live Channel of cc with the caller counted among those who
// wait there, and whether a resolver owns it. leave must follow.
func join(cc *grpc.ClientConn) (ch *Channel, attached bool) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	ch = channelLocked(cc)
	ch.waiters++
	return ch, ch.attached
}

// owned reports whether a resolver owns the Channel, or did.
func (ch *Channel) owned() bool {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	return ch.attached
}

// leave undoes join. A Channel with neither a resolver nor a waiter is removed, so that
// channels that never get a resolver are not kept.
func (ch *Channel) leave() {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	ch.waiters--
	if ch.waiters == 0 && !ch.attached {
		registry.channels.CompareAndDelete(ch.cc, ch)
	}
}

// lookup returns the Channel of cc, or nil. It takes no lock and allocates nothing.
func lookup(cc *grpc.ClientConn) *Channel {
	ch, _ := registry.channels.Load(cc)
	found, _ := ch.(*Channel)
	return found
}
