package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/testutils"
)

// load is constant traffic of every kind on a channel.
type load struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	failed atomic.Int64
	total  atomic.Int64

	mu      sync.Mutex
	errs    []string
	seen    map[string]int // RPCs by backend since the last reset
	changed chan struct{}
}

// startLoad runs one loop for each of the kinds until the load is stopped.
func startLoad(t testing.TB, cc *grpc.ClientConn) *load {
	t.Helper()
	if !isUnder(t, loopback) && !isUnder(t, slowLink) {
		t.Fatal("a test of which no RPC fails has to run over links with and without latency: see overLinks")
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{cancel: cancel, seen: map[string]int{}, changed: make(chan struct{})}
	for _, k := range kinds {
		l.wg.Go(func() {
			for ctx.Err() == nil {
				// The RPC's own context: stopping the load lets it end.
				id, err := call(context.Background(), cc, k)
				l.record(k, id, err)
			}
		})
	}
	t.Cleanup(func() { cancel(); l.wg.Wait() })
	return l
}

// loadOn starts a load once the channel is connected, and waits until the backends answer
// it.
func loadOn(t testing.TB, cc *grpc.ClientConn, backends ...*testutils.Backend) *load {
	t.Helper()
	first := backendFor(testutils.Context(t), t, cc, unary)
	if !slices.ContainsFunc(backends, func(b *testutils.Backend) bool { return b.ID() == first }) {
		t.Errorf("the first RPC was answered by %q", first)
	}
	l := startLoad(t, cc)
	l.await(t, backends...)
	return l
}

func (l *load) record(k kind, id string, err error) {
	l.total.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed.Add(1)
		if len(l.errs) < 5 {
			l.errs = append(l.errs, fmt.Sprintf("%s: %v", k, err))
		}
		return
	}
	l.seen[id]++
	close(l.changed)
	l.changed = make(chan struct{})
}

// await returns when every one of the backends, and no other, has answered
// RPCs of late: n more of them in a row.
func (l *load) await(t testing.TB, backends ...*testutils.Backend) {
	t.Helper()
	ctx := testutils.Context(t)
	var want []string
	for _, b := range backends {
		want = append(want, b.ID())
	}
	slices.Sort(want)
	for {
		l.mu.Lock()
		clear(l.seen)
		var got []string
		for n := 0; n < 40; {
			changed := l.changed
			l.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("RPCs were not answered by %v alone; last by %v; failures: %v", want, got, l.errs)
			}
			l.mu.Lock()
			n = 0
			got = got[:0]
			for id, count := range l.seen {
				n += count
				got = append(got, id)
			}
		}
		l.mu.Unlock()
		slices.Sort(got)
		if slices.Equal(got, want) {
			return
		}
	}
}

// stop ends the load and checks that no RPC failed.
func (l *load) stop(t testing.TB) {
	t.Helper()
	l.cancel()
	l.wg.Wait()
	if n := l.failed.Load(); n > 0 {
		t.Errorf("%d of %d RPCs failed, for example:\n%s", n, l.total.Load(), strings.Join(l.errs, "\n"))
	}
}
