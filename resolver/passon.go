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

	"github.com/dynxds/dynxds/configselector"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// passOn passes the RPCs of a channel that DNS configures on to gRPC, which follows the service
// config, except for its hedgingPolicy (gRFC A6), which gRPC-Go does not have. Each RPC carries a
// Decision without a cluster and with an old version: if xDS takes over while it waits for a
// connection, the root picker routes it again.
type passOn struct {
	channel *grpc.ClientConn
	version uint64
	// endpoint is what DNS resolves, reason why it does. They are set before RPCs run.
	endpoint, reason string

	// running counts unary RPCs until they end, and others until their stream is open.
	running    atomic.Int64
	succession atomic.Pointer[succession] // nil until the channel moves to xDS
	// hedging runs the RPCs if the service config hedges some of them, or is nil.
	hedging atomic.Pointer[configselector.Selector]
}

// succession is the move to another Runner.
type succession struct {
	idle chan struct{} // gets a value, for which it has room, when running is 0
	over chan struct{} // is closed when next is set
	next grpcbridge.Runner
}

// patience is how long the move waits for running RPCs. Replacing the policy that DNS
// configured shuts down all of its connections, and gRPC-Go 1.85 loses an RPC between its
// pick and the opening of its stream if the connection is shut down then while another stream
// keeps it open. An RPC that runs for longer has its stream, or waits for a connection, which
// is safe too.
const patience = 250 * time.Millisecond

// stop makes further RPCs wait for succeed, and returns when the running ones are safe.
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

// succeed makes next run the RPCs that wait, and later ones.
func (p *passOn) succeed(next grpcbridge.Runner) {
	s := p.succession.Load()
	s.next = next
	close(s.over)
}

// enter admits an RPC, which then has to leave, or returns the Runner to run it instead, or
// the error that the RPC ends with.
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
	if s := p.hedging.Load(); s != nil {
		return p.explained(s.Unary(ctx, method, req, reply, cc, invoker, opts))
	}
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
	if s := p.hedging.Load(); s != nil {
		stream, err := s.Stream(ctx, desc, cc, method, streamer, opts)
		return stream, p.explained(err)
	}
	stream, err := streamer(p.decide(ctx, method), desc, cc, method, opts...)
	return stream, p.explained(err)
}

// explained adds to the error of an RPC that got no connection that DNS is in use, and why.
// gRPC does not mark such errors, but those of servers come over a connection: only in the moment in
// which gRPC gives RPCs the first one, before the channel is READY, is one of those explained too.
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
