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

// The traffic at most: four workers with 150 unary RPCs a second each, and
// eight that always have a stream open, so that a backend which stops has RPCs
// in flight. A further client has one unary worker. A machine that is slower gets
// less.
const (
	unaryWorkers  = 4
	unaryInterval = time.Second / 150
	streamWorkers = 8
	// A stream carries streamMessages responses, streamGap apart.
	streamMessages = 4
	streamGap      = 20 * time.Millisecond
)

// hungAfter is when an RPC counts as failed for want of an answer. It cannot be
// the RPC's deadline, which carries the number of the configuration.
const hungAfter = 20 * time.Second

var errHung = fmt.Errorf("no answer within %v", hungAfter)

// traffic makes RPCs until it is stopped.
type traffic struct {
	client testgrpc.TestServiceClient
	record func(rpc)
	// ctx ends RPCs at once, stopping only keeps new ones from beginning. ctx
	// has no deadline.
	ctx      context.Context
	release  func()
	stopping chan struct{}
	workers  sync.WaitGroup
}

// startTraffic begins to make RPCs, which end when ctx does. The caller has to
// call stop.
func startTraffic(ctx context.Context, channel grpc.ClientConnInterface, record func(rpc)) *traffic {
	t := newTraffic(ctx, channel, record)
	for i := range unaryWorkers {
		t.workers.Go(func() { t.work(unaryInterval, unaryInterval*time.Duration(i)/unaryWorkers, t.unary) })
	}
	for range streamWorkers {
		t.workers.Go(func() { t.work(0, 0, t.stream) })
	}
	return t
}

// startFurtherTraffic is startTraffic for a further client, whose RPCs are recorded
// under its name.
func startFurtherTraffic(ctx context.Context, channel grpc.ClientConnInterface, name string, record func(rpc)) *traffic {
	t := newTraffic(ctx, channel, record)
	t.workers.Go(func() {
		t.work(unaryInterval, 0, func() {
			t.call(rpc{method: name}, func(ctx context.Context, opts ...grpc.CallOption) error {
				_, err := t.client.EmptyCall(ctx, &testgrpc.Empty{}, opts...)
				return err
			})
		})
	})
	return t
}

func newTraffic(ctx context.Context, channel grpc.ClientConnInterface, record func(rpc)) *traffic {
	// A deadline of ctx would take the place of the one that carries the number
	// of the configuration.
	timeless, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(ctx, cancel)
	return &traffic{
		client: testgrpc.NewTestServiceClient(channel), record: record,
		ctx: timeless, release: func() { unlink(); cancel() },
		stopping: make(chan struct{}),
	}
}

// stop returns when the RPCs under way have ended.
func (t *traffic) stop() {
	close(t.stopping)
	t.workers.Wait()
	t.release()
}

// work calls makeRPC, at best once per interval. What was missed is not made up
// for.
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

// unary draws the method at random: in turns, the method would go in step with
// the turns of round robin.
func (t *traffic) unary() {
	if rand.IntN(2) == 0 {
		t.call(rpc{method: unaryCall}, func(ctx context.Context, opts ...grpc.CallOption) error {
			_, err := t.client.UnaryCall(ctx, &testgrpc.SimpleRequest{}, opts...)
			return err
		})
		return
	}
	t.call(rpc{method: emptyCall}, func(ctx context.Context, opts ...grpc.CallOption) error {
		_, err := t.client.EmptyCall(ctx, &testgrpc.Empty{}, opts...)
		return err
	})
}

func (t *traffic) stream() {
	t.call(rpc{method: fullDuplexCall, paced: true}, t.exchange)
}

// exchange is one bidirectional stream, from its creation to its status.
func (t *traffic) exchange(ctx context.Context, opts ...grpc.CallOption) error {
	stream, err := t.client.FullDuplexCall(ctx, opts...)
	if err != nil {
		return err
	}
	req := &testgrpc.StreamingOutputCallRequest{}
	for range streamMessages {
		req.ResponseParameters = append(req.ResponseParameters,
			&testgrpc.ResponseParameters{IntervalUs: int32(streamGap.Microseconds())})
	}
	// Where sending fails, the reason is what receiving returns.
	if err := stream.Send(req); err == nil {
		_ = stream.CloseSend()
	}
	for received := 0; ; received++ {
		_, err := stream.Recv()
		switch {
		case err == nil:
			continue
		case !errors.Is(err, io.EOF):
			return err
		case received != streamMessages:
			return fmt.Errorf("the stream ended well with %d responses of %d", received, streamMessages)
		}
		return nil
	}
}

// call makes an RPC and records it, unless it failed because the demo was
// interrupted.
func (t *traffic) call(r rpc, f func(context.Context, ...grpc.CallOption) error) {
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
	r.peer = addrString(from.Addr)

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
