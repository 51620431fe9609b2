package testutils

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/await"
	"github.com/dynxds/dynxds/internal/loopback"
)

// BackendIDHeader is the response header with the ID of the Backend.
const BackendIDHeader = "backend-id"

// RPC describes an RPC at its begin.
type RPC struct {
	// Method is the full method, "/grpc.testing.TestService/UnaryCall".
	Method string
	// Authority is the :authority pseudo header.
	Authority string
	// Metadata is the request's, including what gRPC adds.
	Metadata metadata.MD
	// Deadline is the RPC's, zero if it has none.
	Deadline time.Time
}

// Backend is a gRPC server on loopback with grpc.testing.TestService. Its ID is in the response header
// BackendIDHeader of every RPC, and in SimpleResponse.hostname of unary RPCs. It is safe for concurrent
// use.
type Backend struct {
	id     string
	server *loopback.Server

	state  await.State
	count  int
	last   RPC
	behave func(context.Context, RPC) error
}

// NewBackend starts a Backend. The options are gRPC's. The caller must Close it.
func NewBackend(id string, opts ...grpc.ServerOption) (*Backend, error) {
	b := &Backend{id: id}
	opts = append([]grpc.ServerOption{
		grpc.ChainUnaryInterceptor(b.unary),
		grpc.ChainStreamInterceptor(b.stream),
	}, opts...)
	server, err := loopback.StartServer(func() loopback.Run {
		run := loopback.Run{GRPC: grpc.NewServer(opts...), EndStreams: func() {}}
		testgrpc.RegisterTestServiceServer(run.GRPC, &testService{id: id})
		return run
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", id, err)
	}
	b.server = server
	return b, nil
}

// StartBackend starts a Backend that is closed when the test ends.
func StartBackend(t testing.TB, id string, opts ...grpc.ServerOption) *Backend {
	t.Helper()
	b, err := NewBackend(id, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// ID returns the value of BackendIDHeader.
func (b *Backend) ID() string { return b.id }

// Addr returns "127.0.0.1:port". It stays the same across restarts.
func (b *Backend) Addr() string { return b.server.Addr() }

// Stop ends every connection and RPC at once and stops listening: connections are refused until Restart.
// It does nothing if the backend is stopped.
func (b *Backend) Stop() { b.server.Stop() }

// GracefulStop stops listening, sends GOAWAY, and returns when the RPCs in flight have ended.
func (b *Backend) GracefulStop() { b.server.GracefulStop() }

// Restart listens on the same address again. It stops the backend first if it
// is running.
func (b *Backend) Restart() error {
	if err := b.server.Restart(); err != nil {
		return fmt.Errorf("backend %s: %w", b.id, err)
	}
	return nil
}

// Close stops the backend and releases its port.
func (b *Backend) Close() { b.server.Close() }

// SetBehaviour makes every new RPC call f first: f may wait, and its error ends the RPC like that of a
// gRPC handler. nil, the default, answers at once.
func (b *Backend) SetBehaviour(f func(ctx context.Context, rpc RPC) error) {
	b.state.Look(func() { b.behave = f })
}

// Fail ends every new RPC with err; nil ends that.
func (b *Backend) Fail(err error) {
	b.SetBehaviour(func(context.Context, RPC) error { return err })
}

// Count returns the number of RPCs so far.
func (b *Backend) Count() (n int) {
	b.state.Look(func() { n = b.count })
	return n
}

// Last returns the last RPC, the zero RPC if there was none.
func (b *Backend) Last() (last RPC) {
	b.state.Look(func() { last = b.last })
	return last
}

// Wait returns when at least n RPCs have begun, or the context's error.
func (b *Backend) Wait(ctx context.Context, n int) error {
	if err := b.state.Wait(ctx, func() bool { return b.count >= n }); err != nil {
		return fmt.Errorf("backend %s: waiting for %d RPCs, got %d: %w", b.id, n, b.Count(), err)
	}
	return nil
}

// begin records the RPC, calls the behaviour and sets the header.
func (b *Backend) begin(ctx context.Context) error {
	var rpc RPC
	rpc.Method, _ = grpc.Method(ctx)
	rpc.Metadata, _ = metadata.FromIncomingContext(ctx)
	if a := rpc.Metadata.Get(":authority"); len(a) > 0 {
		rpc.Authority = a[0]
	}
	rpc.Deadline, _ = ctx.Deadline()

	var behave func(context.Context, RPC) error
	b.state.Change(func() {
		b.count++
		b.last, behave = rpc, b.behave
	})
	var err error
	if behave != nil {
		err = behave(ctx, rpc)
	}
	if only, ok := err.(trailersOnly); ok {
		return only.error
	}
	if setErr := grpc.SetHeader(ctx, metadata.Pairs(BackendIDHeader, b.id)); err == nil {
		err = setErr
	}
	return err
}

// TrailersOnly marks an error of a behaviour: the RPC ends with err and without response headers,
// BackendIDHeader included, as a retry requires (gRFC A6, "When Retries are Valid").
func TrailersOnly(err error) error { return trailersOnly{err} }

type trailersOnly struct{ error }

func (b *Backend) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (b *Backend) stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := b.begin(stream.Context()); err != nil {
		return err
	}
	return handler(srv, stream)
}
