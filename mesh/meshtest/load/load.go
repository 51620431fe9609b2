package load

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

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

// Failure is an RPC that failed.
type Failure struct {
	Kind string
	// Began is when the RPC began, and Took how long until it failed.
	Began time.Time
	Took  time.Duration
	Err   error
}

// Load is the RPCs running on one channel. It is safe for concurrent use.
type Load struct {
	client testpb.TestServiceClient
	ending chan struct{} // closed: no further RPC begins
	end    func()
	work   sync.WaitGroup

	state    xdstest.State
	done     map[string]int // succeeded RPCs by kind
	failures []Failure
	last     answers // since the last call of WaitForBackends
}

// Start begins RPCs of every kind on the channel, one after the other of each
// kind: unary and the three streaming kinds. The test fails when it ends if an
// RPC has failed.
func Start(t testing.TB, cc grpc.ClientConnInterface) *Load {
	t.Helper()
	l := &Load{
		client: testpb.NewTestServiceClient(cc),
		ending: make(chan struct{}),
		done:   map[string]int{},
		last:   answers{},
	}
	l.end = sync.OnceFunc(func() { close(l.ending) })
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
	failures, done := l.finish()
	for i, f := range failures {
		if i == maxReported {
			break
		}
		t.Errorf("%s RPC that began at %s failed after %v: %v", f.Kind, f.Began.Format("15:04:05.000000"), f.Took, f.Err)
	}
	if len(failures) > 0 {
		t.Errorf("%d RPCs failed; succeeded: %v", len(failures), done)
	}
}

// finish ends the load and returns the failures that were not reported yet, and how many
// RPCs of each kind succeeded.
func (l *Load) finish() (failures []Failure, done map[string]int) {
	l.end()
	l.work.Wait()
	l.state.Change(func() { failures, l.failures = l.failures, nil })
	return failures, l.done
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

func (l *Load) succeeded(kind, backend string) {
	l.state.Change(func() {
		l.done[kind]++
		l.last.add(kind, backend)
	})
}

func (l *Load) failed(kind string, began time.Time, err error) {
	l.state.Change(func() {
		l.failures = append(l.failures, Failure{Kind: kind, Began: began, Took: time.Since(began), Err: err})
	})
}

// repeat makes RPCs of one kind until Stop.
func (l *Load) repeat(kind Kind) {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for l.proceed(ticker) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		header, err := kind.Do(ctx, l.client)
		cancel()
		var backend string
		if err == nil {
			backend, err = backendOf(header)
		}
		if err != nil {
			l.failed(kind.Name, began, err)
			continue
		}
		l.succeeded(kind.Name, backend)
	}
}

// proceed waits for the next tick and reports whether there is more to do.
func (l *Load) proceed(ticker *time.Ticker) bool {
	select {
	case <-l.ending:
		return false
	case <-ticker.C:
		return true
	}
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
		if err := l.keepUp(stream, hangs); err != nil {
			l.failed(longLived, began, err)
		}
	})
	t.Cleanup(func() { l.Stop(t) }) // Before the channel is closed.
}

// keepUp exchanges messages until Stop and ends the stream. The timer ends a
// stream that hangs.
func (l *Load) keepUp(stream testpb.TestService_FullDuplexCallClient, hangs *time.Timer) error {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for l.proceed(ticker) {
		hangs.Reset(patience)
		if err := exchange(stream); err != nil {
			return err
		}
	}
	hangs.Reset(patience)
	return finish(stream)
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

// backendOf returns the backend that answered, by the header of the response.
func backendOf(header metadata.MD) (string, error) {
	id := header.Get(testutils.BackendIDHeader)
	if len(id) != 1 {
		return "", fmt.Errorf("response header %s is %q, want one value", testutils.BackendIDHeader, id)
	}
	return id[0], nil
}
