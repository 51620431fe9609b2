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
)

// The methods that the traffic calls, by short name.
const (
	unaryCall      = "UnaryCall"
	emptyCall      = "EmptyCall"
	fullDuplexCall = "FullDuplexCall"
)

// The upper bound of the traffic: four workers make 150 unary RPCs a second each, and eight
// always have a stream open, so that a backend that stops has RPCs in flight. A further
// client has one unary worker.
const (
	unaryWorkers  = 4
	unaryInterval = time.Second / 150
	streamWorkers = 8
	// A stream carries streamMessages responses, streamGap apart.
	streamMessages = 4
	streamGap      = 20 * time.Millisecond
)

// hungAfter is how long an RPC waits for an answer. It cannot be the RPC's deadline, which
// carries the number of the configuration.
const hungAfter = 20 * time.Second

var errHung = fmt.Errorf("no answer within %v", hungAfter)

// traffic makes RPCs over any number of channels until it is stopped.
type traffic struct {
	record func(rpc)
	// ctx ends RPCs at once; stopping only prevents new ones. ctx has no deadline, which
	// would take the place of the one that carries the number of the configuration.
	ctx      context.Context
	release  func()
	stopping chan struct{}
	workers  sync.WaitGroup
}

// newTraffic returns traffic whose RPCs end when ctx does. The caller must call stop.
func newTraffic(ctx context.Context, record func(rpc)) *traffic {
	timeless, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(ctx, cancel)
	return &traffic{record: record, ctx: timeless, release: func() { unlink(); cancel() }, stopping: make(chan struct{})}
}

// start makes unary and streaming RPCs over a channel.
func (t *traffic) start(channel grpc.ClientConnInterface) {
	for i := range unaryWorkers {
		t.workers.Go(func() {
			t.work(unaryInterval, unaryInterval*time.Duration(i)/unaryWorkers, func() {
				// At random: alternating methods would correlate with round robin.
				method := []string{unaryCall, emptyCall}[rand.IntN(2)]
				t.call(rpc{method: method}, unary(channel, method))
			})
		})
	}
	for range streamWorkers {
		t.workers.Go(func() {
			t.work(0, 0, func() { t.call(rpc{method: fullDuplexCall}, exchange(channel)) })
		})
	}
}

// startFurther makes unary RPCs over the channel of a further client, which are recorded
// under its name.
func (t *traffic) startFurther(name string, channel grpc.ClientConnInterface) {
	t.workers.Go(func() {
		t.work(unaryInterval, 0, func() { t.call(rpc{method: name}, unary(channel, emptyCall)) })
	})
}

// stop returns when the RPCs under way have ended.
func (t *traffic) stop() {
	close(t.stopping)
	t.workers.Wait()
	t.release()
}

// work calls makeRPC at most once per interval, and does not catch up on missed ones.
func (t *traffic) work(interval, first time.Duration, makeRPC func()) {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-t.stopping:
			return
		case <-t.ctx.Done():
			return
		}
		begun := time.Now()
		makeRPC()
		timer.Reset(max(0, interval-time.Since(begun)))
	}
}

// invoke makes one RPC.
type invoke func(ctx context.Context, opts ...grpc.CallOption) error

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

// exchange is one bidirectional stream, from its creation to its status.
func exchange(channel grpc.ClientConnInterface) invoke {
	return func(ctx context.Context, opts ...grpc.CallOption) error {
		stream, err := testgrpc.NewTestServiceClient(channel).FullDuplexCall(ctx, opts...)
		if err != nil {
			return err
		}
		return receiveAll(stream)
	}
}

func receiveAll(stream testgrpc.TestService_FullDuplexCallClient) error {
	req := &testgrpc.StreamingOutputCallRequest{}
	for range streamMessages {
		req.ResponseParameters = append(req.ResponseParameters,
			&testgrpc.ResponseParameters{IntervalUs: int32(streamGap.Microseconds())})
	}
	// If sending fails, receiving returns the reason.
	if err := stream.Send(req); err == nil {
		_ = stream.CloseSend()
	}
	received := 0
	for ; ; received++ {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	if received != streamMessages {
		return fmt.Errorf("the stream ended well with %d responses of %d", received, streamMessages)
	}
	return nil
}

// call makes an RPC and records it, unless it failed because the demo was interrupted.
func (t *traffic) call(r rpc, f invoke) {
	ctx, cancel := context.WithCancelCause(t.ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(hungAfter, func() { cancel(errHung) })
	defer watchdog.Stop()

	var (
		header metadata.MD
		from   peer.Peer
	)
	r.start = time.Now()
	err := f(ctx, grpc.Header(&header), grpc.Peer(&from))
	r.end = time.Now()
	if from.Addr != nil {
		r.peer = from.Addr.String()
	}
	if err != nil {
		if t.ctx.Err() != nil {
			return
		}
		if errors.Is(context.Cause(ctx), errHung) {
			err = errHung
		}
		r.err = err
	} else {
		r.backend, r.configuration = answeredBy(header)
	}
	t.record(r)
}
