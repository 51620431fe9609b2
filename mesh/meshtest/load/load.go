package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

const (
	// pace is the time between two RPCs of one kind. Several loads run at a time, beside what they are for.
	pace = 5 * time.Millisecond
	// patience is the deadline of an RPC.
	patience = 30 * time.Second
	// streak is how many RPCs of each kind in a row satisfy WaitForBackends.
	streak = 20
	// maxReported bounds the failures that a test prints.
	maxReported = 10
)

// failure is an RPC that failed.
type failure struct {
	kind string
	err  error
}

// Load is the RPCs running on one channel. It is safe for concurrent use.
type Load struct {
	client testpb.TestServiceClient
	// goesOn ends when no further RPC begins.
	goesOn context.Context
	end    context.CancelFunc
	work   sync.WaitGroup

	state    xdstest.State
	done     map[string]int // succeeded RPCs by kind
	failures []failure
	last     answers // since the last call of WaitForBackends
}

// Start begins RPCs of every kind on the channel, one after the other of each
// kind: unary and the three streaming kinds. The test fails when it ends if an
// RPC has failed.
func Start(t testing.TB, cc grpc.ClientConnInterface) *Load {
	t.Helper()
	l := &Load{client: testpb.NewTestServiceClient(cc), done: map[string]int{}, last: answers{}}
	l.goesOn, l.end = context.WithCancel(context.Background())
	for _, kind := range Kinds {
		l.work.Go(func() { l.repeat(kind) })
	}
	t.Cleanup(func() { l.Stop(t) })
	return l
}

// Stop lets the RPCs under way end, begins no more, and fails the test if any
// has failed. It may be called more than once.
func (l *Load) Stop(t testing.TB) {
	t.Helper()
	failures := l.finish()
	for _, f := range failures[:min(len(failures), maxReported)] {
		t.Error(f.err)
	}
	if len(failures) > 0 {
		t.Errorf("%d RPCs failed; succeeded: %v", len(failures), l.done)
	}
}

// finish ends the load and returns the failures that were not reported yet.
func (l *Load) finish() (failures []failure) {
	l.end()
	l.work.Wait()
	l.state.Change(func() { failures, l.failures = l.failures, nil })
	return failures
}

// WaitForBackends returns when the last 20 RPCs of every kind, of those that
// ended since the call, were answered by these backends and no other, each of
// them at least once. It fails the test if that does not happen.
func (l *Load) WaitForBackends(t testing.TB, ids ...string) {
	t.Helper()
	l.state.Change(func() { clear(l.last) })
	defer func() {
		if t.Failed() {
			l.state.Change(func() { t.Logf("the last RPCs of each kind were answered by %q", l.last) })
		}
	}()
	l.state.Await(t, fmt.Sprintf("RPCs that %q alone answer", ids), func() bool { return l.last.areOf(ids) })
}

// repeat makes RPCs of one kind until Stop.
func (l *Load) repeat(kind Kind) {
	for retries.Wait(l.goesOn, pace) == nil {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		header, err := kind.Do(ctx, l.client)
		cancel()
		backend := header.Get(testutils.BackendIDHeader)
		if err == nil && len(backend) != 1 {
			err = fmt.Errorf("response header %s is %q, want one value", testutils.BackendIDHeader, backend)
		}
		if err != nil {
			l.failed(kind.Name, began, err)
			continue
		}
		l.state.Change(func() {
			l.done[kind.Name]++
			l.last.add(kind.Name, backend[0])
		})
	}
}

func (l *Load) failed(kind string, began time.Time, err error) {
	err = fmt.Errorf("%s RPC that began at %s failed after %v: %w", kind, began.Format("15:04:05.000000"), time.Since(began), err)
	l.state.Change(func() { l.failures = append(l.failures, failure{kind, err}) })
}

// HoldStream adds a stream that lives until Stop and exchanges messages all the time with
// the backend that it began on, whatever the configuration. It returns after the first
// exchange.
//
// On Start's own channel it is the harder test: the stream keeps open the
// connection that an update closes, and in gRPC-Go 1.85 by itself RPCs on such a
// connection wait for the end of that stream or of their
// deadline (http2Client.NewStream after GracefulClose).
func (l *Load) HoldStream(t testing.TB, cc grpc.ClientConnInterface) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	hangs := time.AfterFunc(patience, cancel)
	stream, err := testpb.NewTestServiceClient(cc).FullDuplexCall(ctx)
	if err == nil {
		err = exchange(stream)
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	l.work.Go(func() {
		defer cancel()
		defer hangs.Stop()
		for err == nil && retries.Wait(l.goesOn, pace) == nil {
			hangs.Reset(patience)
			err = exchange(stream)
		}
		if hangs.Reset(patience); err == nil {
			err = finish(stream)
		}
		if err != nil {
			l.failed(longLived, began, err)
		}
	})
	t.Cleanup(func() { l.Stop(t) }) // Before the channel is closed.
}

// answers are the backends that have answered the last RPCs of each kind, at most streak of them.
type answers map[string][]string

func (a answers) add(kind, backend string) {
	all := append(a[kind], backend)
	a[kind] = all[max(0, len(all)-streak):]
}

// areOf reports whether there are streak answers of each kind, each from one of the backends, and one at least
// from each of these.
func (a answers) areOf(ids []string) bool {
	seen := map[string]bool{}
	for _, kind := range Kinds {
		for _, id := range a[kind.Name] {
			if !slices.Contains(ids, id) {
				return false
			}
			seen[id] = true
		}
		if len(a[kind.Name]) < streak {
			return false
		}
	}
	return len(seen) == len(ids)
}

// Kind is a kind of RPC, and the method of grpc.testing.TestService that has it.
type Kind struct {
	// Name is how the kind is called; Method is the full method.
	Name, Method string
	// Do makes one RPC from beginning to end and returns its response headers.
	Do func(ctx context.Context, client testpb.TestServiceClient, opts ...grpc.CallOption) (metadata.MD, error)
}

// Kinds is the kinds of RPC that a Load repeats.
var Kinds = []Kind{
	{"unary", testpb.TestService_UnaryCall_FullMethodName, unary},
	{"client streaming", testpb.TestService_StreamingInputCall_FullMethodName, clientStreaming},
	{"server streaming", testpb.TestService_StreamingOutputCall_FullMethodName, serverStreaming},
	{"bidirectional", HeldMethod, bidirectional},
}

// HeldMethod is the full method of the streams of Hold and HoldStream.
const HeldMethod = testpb.TestService_FullDuplexCall_FullMethodName

// longLived is the kind of the streams of HoldStream.
const longLived = "long-lived bidirectional"

// messages is how many messages a short stream carries in each direction.
const messages = 3

const messageSize = 16

func unary(ctx context.Context, client testpb.TestServiceClient, opts ...grpc.CallOption) (metadata.MD, error) {
	var header metadata.MD
	reply, err := client.UnaryCall(ctx, &testpb.SimpleRequest{ResponseSize: messageSize}, append(opts, grpc.Header(&header))...)
	if err != nil {
		return nil, err
	}
	if n := len(reply.GetPayload().GetBody()); n != messageSize {
		return nil, fmt.Errorf("response of %d bytes, want %d", n, messageSize)
	}
	return header, nil
}

func clientStreaming(ctx context.Context, client testpb.TestServiceClient, opts ...grpc.CallOption) (metadata.MD, error) {
	stream, err := client.StreamingInputCall(ctx, opts...)
	if err != nil {
		return nil, err
	}
	for range messages {
		_ = stream.Send(&testpb.StreamingInputCallRequest{Payload: &testpb.Payload{Body: make([]byte, messageSize)}}) // CloseAndRecv has the status
	}
	reply, err := stream.CloseAndRecv()
	if err != nil {
		return nil, err
	}
	if n := reply.GetAggregatedPayloadSize(); n != messages*messageSize {
		return nil, fmt.Errorf("%d bytes arrived, want %d", n, messages*messageSize)
	}
	return stream.Header()
}

func serverStreaming(ctx context.Context, client testpb.TestServiceClient, opts ...grpc.CallOption) (metadata.MD, error) {
	sizes := slices.Repeat([]*testpb.ResponseParameters{{Size: messageSize}}, messages)
	stream, err := client.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{ResponseParameters: sizes}, opts...)
	n := -1
	for ; err == nil; n++ {
		_, err = stream.Recv()
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if n != messages {
		return nil, fmt.Errorf("%d messages came, want %d", n, messages)
	}
	return stream.Header()
}

func bidirectional(ctx context.Context, client testpb.TestServiceClient, opts ...grpc.CallOption) (metadata.MD, error) {
	return Hold(ctx, client, messages, 0, opts...)
}

// Hold opens a bidirectional stream, exchanges so many messages with a pause after each, and ends it. It returns its response headers.
func Hold(ctx context.Context, client testpb.TestServiceClient, messages int, pause time.Duration, opts ...grpc.CallOption) (metadata.MD, error) {
	stream, err := client.FullDuplexCall(ctx, opts...)
	for n := 0; n < messages && err == nil; n++ {
		if err = exchange(stream); err == nil {
			err = retries.Wait(ctx, pause)
		}
	}
	if err == nil {
		err = finish(stream)
	}
	if err != nil {
		return nil, err
	}
	return stream.Header()
}

// exchange sends one message and receives one.
func exchange(stream testpb.TestService_FullDuplexCallClient) error {
	// Recv has the status.
	_ = stream.Send(&testpb.StreamingOutputCallRequest{ResponseParameters: []*testpb.ResponseParameters{{Size: messageSize}}})
	if _, err := stream.Recv(); err != nil {
		return fmt.Errorf("instead of a message: %w", err)
	}
	return nil
}

// finish ends the stream and waits for the server to end it too.
func finish(stream testpb.TestService_FullDuplexCallClient) error {
	_ = stream.CloseSend() // Recv has the status
	switch _, err := stream.Recv(); {
	case err == nil:
		return errors.New("a message came instead of the end of the stream")
	case errors.Is(err, io.EOF):
		return nil
	default:
		return fmt.Errorf("instead of the end of the stream: %w", err)
	}
}
