package demo

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
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

// start starts workers that make RPCs until stop, which are recorded under a name.
func (m *mesh) start(of string, workers int, channel *grpc.ClientConn, method string) {
	for range workers {
		m.workers.Go(func() {
			ticks := time.NewTicker(interval)
			defer ticks.Stop()
			for {
				r := m.call(of, channel, method)
				if r.err == nil || m.ctx.Err() == nil { // or else the demo was interrupted
					m.record(r)
				}
				select {
				case <-ticks.C:
				case <-m.more.Done():
					return
				}
			}
		})
	}
}

// stop returns when the RPCs under way have ended.
func (m *mesh) stop() {
	m.noMore()
	m.workers.Wait()
}

// call makes an RPC.
func (m *mesh) call(of string, channel *grpc.ClientConn, method string) rpc {
	ctx, cancel := context.WithTimeout(m.ctx, rpcTimeout)
	defer cancel()
	var (
		header metadata.MD
		from   peer.Peer
	)
	r := rpc{of: of, start: time.Now()}
	if opts := []grpc.CallOption{grpc.Header(&header), grpc.Peer(&from)}; method == fullDuplexCall {
		r.err = stream(ctx, channel, opts...)
	} else { // an empty message is valid for each of them
		r.err = channel.Invoke(ctx, methodPath(method), &testgrpc.Empty{}, &testgrpc.Empty{}, opts...)
	}
	r.backend, r.configuration = strings.Join(header.Get(testutils.BackendIDHeader), ","), strings.Join(header.Get(configurationHeader), ",")
	if from.Addr != nil {
		r.peer = from.Addr.String()
	}
	return r
}

// methodPath is the path of a method by its short name.
func methodPath(method string) string {
	return "/" + testgrpc.TestService_ServiceDesc.ServiceName + "/" + method
}

// stream is one bidirectional stream, from its creation to its status.
func stream(ctx context.Context, channel *grpc.ClientConn, opts ...grpc.CallOption) error {
	stream, err := testgrpc.NewTestServiceClient(channel).FullDuplexCall(ctx, opts...)
	if err != nil {
		return err
	}
	answers := slices.Repeat([]*testgrpc.ResponseParameters{{IntervalUs: int32(streamGap.Microseconds())}}, streamMessages)
	_ = stream.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: answers}) // if it fails, Recv returns the reason
	_ = stream.CloseSend()
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
