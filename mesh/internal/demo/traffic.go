package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/dynxds/dynxds/testutils"
)

// The methods that the traffic calls, by short name.
const (
	unaryCall      = "UnaryCall"
	emptyCall      = "EmptyCall"
	fullDuplexCall = "FullDuplexCall"
)

// At most four workers make 150 unary RPCs a second each, and eight always have a stream open, so that a backend that stops has RPCs
// in flight.
const (
	unaryWorkers   = 4
	unaryInterval  = time.Second / 150
	streamWorkers  = 8
	streamMessages = 4 // of a stream, streamGap apart
	streamGap      = 20 * time.Millisecond
	// rpcTimeout is longer than any RPC takes.
	rpcTimeout = 20 * time.Second
)

// rpc is one RPC that has ended, as its client saw it.
type rpc struct {
	method        string // short name, or the name of a further client
	backend       string // that answered, or ""
	peer          string // the address of the connection, or ""
	configuration string // that routed it, or ""
	start, end    time.Time
	err           error
}

// traffic makes RPCs over any number of channels until it is stopped.
type traffic struct {
	record   func(rpc)
	ctx      context.Context // of the RPCs
	stopping chan struct{}   // closed when no RPC shall begin any more
	workers  sync.WaitGroup
}

func newTraffic(ctx context.Context, record func(rpc)) *traffic {
	return &traffic{record: record, ctx: ctx, stopping: make(chan struct{})}
}

// start makes unary and streaming RPCs over a channel.
func (t *traffic) start(channel grpc.ClientConnInterface) {
	for range unaryWorkers {
		t.work(unaryInterval, func() {
			// At random: alternating methods would correlate with round robin.
			method := []string{unaryCall, emptyCall}[rand.IntN(2)]
			t.call(method, unary(channel, method))
		})
	}
	for range streamWorkers {
		t.work(streamMessages*streamGap, func() { t.call(fullDuplexCall, exchange(channel)) })
	}
}

// startFurther makes unary RPCs over the channel of a further client, which are recorded under its name.
func (t *traffic) startFurther(name string, channel grpc.ClientConnInterface) {
	t.work(unaryInterval, func() { t.call(name, unary(channel, emptyCall)) })
}

// stop returns when the RPCs under way have ended.
func (t *traffic) stop() {
	close(t.stopping)
	t.workers.Wait()
}

// work starts a worker that calls makeRPC at most once per interval, and does not catch up on missed ones.
func (t *traffic) work(interval time.Duration, makeRPC func()) {
	t.workers.Go(func() {
		ticks := time.NewTicker(interval)
		defer ticks.Stop()
		for {
			makeRPC()
			select {
			case <-ticks.C:
			case <-t.stopping:
				return
			case <-t.ctx.Done():
				return
			}
		}
	})
}

// call makes an RPC and records it, unless it failed because the demo was interrupted.
func (t *traffic) call(method string, invoke func(context.Context, ...grpc.CallOption) error) {
	ctx, cancel := context.WithTimeout(t.ctx, rpcTimeout)
	defer cancel()
	var (
		header metadata.MD
		from   peer.Peer
	)
	r := rpc{method: method, start: time.Now()}
	r.err = invoke(ctx, grpc.Header(&header), grpc.Peer(&from))
	r.end = time.Now()
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
func unary(channel grpc.ClientConnInterface, method string) func(context.Context, ...grpc.CallOption) error {
	return func(ctx context.Context, opts ...grpc.CallOption) error {
		return channel.Invoke(ctx, methodPath(method), &testgrpc.Empty{}, &testgrpc.Empty{}, opts...)
	}
}

// methodPath is the path of a method by its short name.
func methodPath(method string) string {
	return "/" + testgrpc.TestService_ServiceDesc.ServiceName + "/" + method
}

// exchange is one bidirectional stream, from its creation to its status.
func exchange(channel grpc.ClientConnInterface) func(context.Context, ...grpc.CallOption) error {
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
