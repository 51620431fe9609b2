package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/dynxds/dynxds/testutils"
)

const (
	// interval is the least time between the begins of two RPCs of a worker.
	interval = 7 * time.Millisecond
	// streamMessages are the responses of a stream, streamGap apart.
	streamMessages = 4
	streamGap      = 20 * time.Millisecond
	// rpcTimeout is longer than any RPC takes.
	rpcTimeout = 20 * time.Second
)

// rpc is one RPC that has ended, as its client saw it.
type rpc struct {
	of            string // the method, or the client if it is a further one
	backend       string // that answered, or ""
	peer          string // the address of the connection, or ""
	configuration string // that routed it, or ""
	start         time.Time
	err           error
}

// traffic makes RPCs until it is stopped.
type traffic struct {
	record  func(rpc)
	ctx     context.Context // of the RPCs
	more    context.Context // until then RPCs begin
	noMore  context.CancelFunc
	workers sync.WaitGroup
}

// invoke makes one RPC.
type invoke func(context.Context, ...grpc.CallOption) error

// start starts workers that make RPCs, which are recorded under a name.
func (t *traffic) start(of string, workers int, makeRPC invoke) {
	for range workers {
		t.workers.Go(func() {
			ticks := time.NewTicker(interval)
			defer ticks.Stop()
			for {
				t.call(of, makeRPC)
				select {
				case <-ticks.C:
				case <-t.more.Done():
					return
				}
			}
		})
	}
}

// stop returns when the RPCs under way have ended.
func (t *traffic) stop() {
	t.noMore()
	t.workers.Wait()
}

// call makes an RPC and records it, unless it failed because the demo was interrupted.
func (t *traffic) call(of string, makeRPC invoke) {
	ctx, cancel := context.WithTimeout(t.ctx, rpcTimeout)
	defer cancel()
	var (
		header metadata.MD
		from   peer.Peer
	)
	r := rpc{of: of, start: time.Now()}
	r.err = makeRPC(ctx, grpc.Header(&header), grpc.Peer(&from))
	if r.err != nil && t.ctx.Err() != nil {
		return
	}
	r.backend, r.configuration = first(header, testutils.BackendIDHeader), first(header, configurationHeader)
	if from.Addr != nil {
		r.peer = from.Addr.String()
	}
	t.record(r)
}

// first returns the first value of a header, or "".
func first(header metadata.MD, name string) string {
	if values := header.Get(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// unary calls a method with an empty message, which is valid for each of them.
func unary(channel grpc.ClientConnInterface, method string) invoke {
	return func(ctx context.Context, opts ...grpc.CallOption) error {
		return channel.Invoke(ctx, methodPath(method), &testgrpc.Empty{}, &testgrpc.Empty{}, opts...)
	}
}

// methodPath is the path of a method by its short name.
func methodPath(method string) string {
	return "/" + testgrpc.TestService_ServiceDesc.ServiceName + "/" + method
}

// stream is one bidirectional stream, from its creation to its status.
func stream(channel grpc.ClientConnInterface) invoke {
	request := &testgrpc.StreamingOutputCallRequest{
		ResponseParameters: []*testgrpc.ResponseParameters{{IntervalUs: int32(streamGap.Microseconds())}},
	}
	return func(ctx context.Context, opts ...grpc.CallOption) error {
		stream, err := testgrpc.NewTestServiceClient(channel).FullDuplexCall(ctx, opts...)
		if err != nil {
			return err
		}
		for range streamMessages {
			_ = stream.Send(request) // if it fails, Recv returns the reason
			if _, err := stream.Recv(); err != nil {
				return fmt.Errorf("no response: %w", err)
			}
		}
		_ = stream.CloseSend()
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			return fmt.Errorf("the stream did not end: %w", err)
		}
		return nil
	}
}
