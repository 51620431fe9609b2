package resolver

import (
	"context"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/decision"
)

// passOn runs the RPCs of a channel that DNS configures: gRPC does with them
// what the service config says. Each carries a Decision for no cluster, older
// than any of xDS: if xDS takes over while the RPC waits for a connection, the
// root picker routes it again.
type passOn struct {
	channel *grpc.ClientConn
	version uint64
}

// Unary implements grpcbridge.Runner.
func (p passOn) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts []grpc.CallOption) error {
	return invoker(p.decide(ctx, method), method, req, reply, cc, opts...)
}

// Stream implements grpcbridge.Runner.
func (p passOn) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts []grpc.CallOption) (grpc.ClientStream, error) {
	return streamer(p.decide(ctx, method), desc, cc, method, opts...)
}

func (p passOn) decide(ctx context.Context, method string) *decision.Decision {
	return &decision.Decision{Context: ctx, Channel: p.channel, Version: p.version, Method: method}
}
