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

// dnsRunner passes the RPCs of a channel that DNS configures on to gRPC, which follows the service
// config. Each RPC carries a Decision without a cluster and with an old version: if xDS takes over while
// the RPC waits for a connection, the root picker routes the RPC again.
type dnsRunner struct {
	channel *grpc.ClientConn
	version uint64
	// because is what errors end with: the name that DNS resolves, and why DNS does.
	because string

	// running counts unary RPCs until they end, and others until their stream is open.
	running atomic.Int64
	moving  atomic.Pointer[handOver] // nil until the channel moves to xDS
}

// handOver is the move of the RPCs to another Runner.
type handOver struct {
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

// stop makes further RPCs wait for handOverTo, and returns when the running ones are safe.
func (r *dnsRunner) stop() {
	s := &handOver{idle: make(chan struct{}, 1), over: make(chan struct{})}
	r.moving.Store(s)
	if r.running.Load() == 0 {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.idle:
	case <-timer.C:
	}
}

// handOverTo makes next run the RPCs that wait, and all later ones.
func (r *dnsRunner) handOverTo(next grpcbridge.Runner) {
	s := r.moving.Load()
	s.next = next
	close(s.over)
}

// enter admits an RPC, which then has to leave, or returns the Runner to run it instead, or
// the error that the RPC ends with.
func (r *dnsRunner) enter(ctx context.Context, opts []grpc.CallOption) (instead grpcbridge.Runner, err error) {
	r.running.Add(1)
	s := r.moving.Load()
	if s == nil {
		return nil, nil
	}
	r.leave()
	select {
	case <-s.over:
		return s.next, nil
	case <-ctx.Done():
		err := status.FromContextError(ctx.Err()).Err()
		grpcbridge.Finish(opts, err)
		return nil, err
	}
}

func (r *dnsRunner) leave() {
	if r.running.Add(-1) > 0 {
		return
	}
	if s := r.moving.Load(); s != nil {
		select {
		case s.idle <- struct{}{}:
		default:
		}
	}
}

// Unary implements grpcbridge.Runner.
func (r *dnsRunner) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts []grpc.CallOption) error {
	instead, err := r.enter(ctx, opts)
	switch {
	case err != nil:
		return err
	case instead != nil:
		return instead.Unary(ctx, method, req, reply, cc, invoker, opts)
	}
	defer r.leave()
	return r.explained(invoker(r.decide(ctx, method), method, req, reply, cc, opts...))
}

// Stream implements grpcbridge.Runner.
func (r *dnsRunner) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts []grpc.CallOption) (grpc.ClientStream, error) {
	instead, err := r.enter(ctx, opts)
	switch {
	case err != nil:
		return nil, err
	case instead != nil:
		return instead.Stream(ctx, desc, cc, method, streamer, opts)
	}
	defer r.leave()
	stream, err := streamer(r.decide(ctx, method), desc, cc, method, opts...)
	return stream, r.explained(err)
}

// explained adds to the error of an RPC that got no connection that DNS is in use, and the reason. gRPC does not
// mark such errors, but servers' errors come over a connection, with which the channel is READY. The exception is
// the moment between the first connection and READY, in which a server's error is explained too.
func (r *dnsRunner) explained(err error) error {
	if err == nil || r.channel.GetState() == connectivity.Ready {
		return err
	}
	s := status.Convert(err).Proto()
	switch codes.Code(s.GetCode()) {
	case codes.Unavailable, codes.DeadlineExceeded:
		if !strings.Contains(s.GetMessage(), r.because) {
			s.Message += r.because
		}
		return status.ErrorProto(s)
	default:
		return err
	}
}

func (r *dnsRunner) decide(ctx context.Context, method string) *decision.Decision {
	return &decision.Decision{Context: ctx, Channel: r.channel, Version: r.version, Method: method}
}
