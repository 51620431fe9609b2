package resolver

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// passOn runs the RPCs of a channel that DNS configures: gRPC does with them
// what the service config says. Each carries a Decision for no cluster, older
// than any of xDS: if xDS takes over while the RPC waits for a connection, the
// root picker routes it again.
type passOn struct {
	channel *grpc.ClientConn
	version uint64
	// endpoint is what DNS resolves, and reason is why it does. They are set before
	// RPCs are run.
	endpoint, reason string

	// running counts the RPCs inside: unary ones until they end, others until
	// their stream is open.
	running atomic.Int64
	// succession is nil until the channel moves to xDS.
	succession atomic.Pointer[succession]
}

// succession is the move to another Runner.
type succession struct {
	// idle has room for one: no RPC is inside.
	idle chan struct{}
	// over is closed when next is set.
	over chan struct{}
	next grpcbridge.Runner
}

// patience is how long the move waits for RPCs inside to end. It covers the
// moment between the pick of a connection and the opening of the RPC's stream
// on it, from which gRPC-Go 1.85 does not recover if the connection is shut
// down while another stream keeps it open: and to take over from the policy
// that DNS configured is to shut down all of its connections. What is left
// inside after that long has its stream, or waits for a connection, which is
// safe too.
const patience = 250 * time.Millisecond

// stop keeps further RPCs waiting, until succeed, and returns when those inside
// can be left to themselves.
func (p *passOn) stop() {
	s := &succession{idle: make(chan struct{}, 1), over: make(chan struct{})}
	p.succession.Store(s)
	if p.running.Load() == 0 {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.idle:
	case <-timer.C:
	}
}

// succeed has the RPCs that wait since stop run by next, which also runs those
// that find their way here later.
func (p *passOn) succeed(next grpcbridge.Runner) {
	s := p.succession.Load()
	s.next = next
	close(s.over)
}

// enter lets an RPC in, or returns who is to run it instead, or why the RPC
// ends. An RPC that was let in has to leave.
func (p *passOn) enter(ctx context.Context, opts []grpc.CallOption) (instead grpcbridge.Runner, err error) {
	p.running.Add(1)
	s := p.succession.Load()
	if s == nil {
		return nil, nil
	}
	p.leave()
	select {
	case <-s.over:
		return s.next, nil
	case <-ctx.Done():
		err := status.FromContextError(ctx.Err()).Err()
		grpcbridge.Finish(opts, err)
		return nil, err
	}
}

func (p *passOn) leave() {
	if p.running.Add(-1) > 0 {
		return
	}
	if s := p.succession.Load(); s != nil {
		select {
		case s.idle <- struct{}{}:
		default:
		}
	}
}

// Unary implements grpcbridge.Runner.
func (p *passOn) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts []grpc.CallOption) error {
	instead, err := p.enter(ctx, opts)
	switch {
	case err != nil:
		return err
	case instead != nil:
		return instead.Unary(ctx, method, req, reply, cc, invoker, opts)
	}
	defer p.leave()
	return p.explained(invoker(p.decide(ctx, method), method, req, reply, cc, opts...))
}

// Stream implements grpcbridge.Runner.
func (p *passOn) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts []grpc.CallOption) (grpc.ClientStream, error) {
	instead, err := p.enter(ctx, opts)
	switch {
	case err != nil:
		return nil, err
	case instead != nil:
		return instead.Stream(ctx, desc, cc, method, streamer, opts)
	}
	defer p.leave()
	stream, err := streamer(p.decide(ctx, method), desc, cc, method, opts...)
	return stream, p.explained(err)
}

// explained has an RPC's error say that DNS is in use and why, if it is for want of a
// connection. gRPC does not tell such errors from those of servers; but for the latter
// there is a connection.
func (p *passOn) explained(err error) error {
	if err == nil || p.channel.GetState() == connectivity.Ready {
		return err
	}
	s := status.Convert(err).Proto()
	switch codes.Code(s.GetCode()) {
	case codes.Unavailable, codes.DeadlineExceeded:
		if !strings.Contains(s.GetMessage(), p.reason) {
			s.Message += askedDNS(p.endpoint, p.reason)
		}
		return status.ErrorProto(s)
	default:
		return err
	}
}

func (p *passOn) decide(ctx context.Context, method string) *decision.Decision {
	return &decision.Decision{Context: ctx, Channel: p.channel, Version: p.version, Method: method}
}
