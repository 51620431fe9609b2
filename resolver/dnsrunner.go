package resolver

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// handOver is the move of the RPCs to another Runner.
type handOver struct {
	idle func()        // is called when running is 0, maybe repeatedly
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
func (d *dnsSource) stop() {
	ctx, idle := context.WithTimeout(context.Background(), patience)
	d.moving.Store(&handOver{idle: idle, over: make(chan struct{})})
	if d.running.Load() == 0 {
		idle()
	}
	<-ctx.Done()
}

// handOverTo makes next run the RPCs that wait, and all later ones.
func (d *dnsSource) handOverTo(next grpcbridge.Runner) {
	s := d.moving.Load()
	s.next = next
	close(s.over)
}

// enter admits an RPC, which then has to leave, or returns the Runner to run it instead, or
// the error that the RPC ends with.
func (d *dnsSource) enter(ctx context.Context, opts []grpc.CallOption) (instead grpcbridge.Runner, err error) {
	d.running.Add(1)
	s := d.moving.Load()
	if s == nil {
		return nil, nil
	}
	d.leave()
	select {
	case <-s.over:
		return s.next, nil
	case <-ctx.Done():
		err := status.FromContextError(ctx.Err()).Err()
		grpcbridge.Finish(opts, err)
		return nil, err
	}
}

func (d *dnsSource) leave() {
	if d.running.Add(-1) == 0 {
		if s := d.moving.Load(); s != nil {
			s.idle()
		}
	}
}

// Unary implements grpcbridge.Runner. It passes the RPC on to gRPC, which follows the service config.
func (d *dnsSource) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts []grpc.CallOption) error {
	instead, err := d.enter(ctx, opts)
	switch {
	case err != nil:
		return err
	case instead != nil:
		return instead.Unary(ctx, method, req, reply, cc, invoker, opts)
	}
	defer d.leave()
	return d.explained(invoker(d.decide(ctx, method), method, req, reply, cc, opts...))
}

// Stream implements grpcbridge.Runner.
func (d *dnsSource) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts []grpc.CallOption) (grpc.ClientStream, error) {
	instead, err := d.enter(ctx, opts)
	switch {
	case err != nil:
		return nil, err
	case instead != nil:
		return instead.Stream(ctx, desc, cc, method, streamer, opts)
	}
	defer d.leave()
	stream, err := streamer(d.decide(ctx, method), desc, cc, method, opts...)
	return stream, d.explained(err)
}

// explained adds to the error of an RPC that got no connection that DNS is in use, and the reason. gRPC does not
// mark such errors, but servers' errors come over a connection, with which the channel is READY. The exception is
// the moment between the first connection and READY, in which a server's error is explained too.
func (d *dnsSource) explained(err error) error {
	code := status.Code(err)
	if code != codes.Unavailable && code != codes.DeadlineExceeded || d.channel.ClientConn().GetState() == connectivity.Ready {
		return err
	}
	s := status.Convert(err).Proto()
	s.Message += d.because
	return status.ErrorProto(s)
}

// decide returns a Decision without a cluster and with an old version: if xDS takes over while the RPC waits for a
// connection, the root picker routes it again.
func (d *dnsSource) decide(ctx context.Context, method string) *decision.Decision {
	return &decision.Decision{Context: ctx, Channel: d.channel.ClientConn(), Version: d.version, Method: method}
}
