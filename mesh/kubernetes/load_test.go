package main

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// load makes RPCs all the time, and counts those that fail.
type load struct {
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	sent   int
	failed int
	// firstFailed and lastFailed are when RPCs failed, and errors are the first ones.
	firstFailed, lastFailed time.Time
	errors                  []error
	// first has when a backend answered first.
	first map[string]time.Time
}

func startLoad(conn *grpc.ClientConn, workers int) *load {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{stop: stop, first: map[string]time.Time{}}
	for range workers {
		l.running.Go(func() {
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				rpc, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				response, err := testgrpc.NewTestServiceClient(conn).UnaryCall(rpc, &testgrpc.SimpleRequest{})
				cancel()
				l.note(response.GetServerId(), err)
				<-tick.C
			}
		})
	}
	return l
}

func (l *load) note(id string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	if err != nil {
		l.failed++
		l.lastFailed = time.Now()
		if l.firstFailed.IsZero() {
			l.firstFailed = l.lastFailed
		}
		if len(l.errors) < 10 {
			l.errors = append(l.errors, err)
		}
		return
	}
	if l.first[id].IsZero() {
		l.first[id] = time.Now()
	}
}

// halt ends the load.
func (l *load) halt() {
	l.stop()
	l.running.Wait()
}

// end ends the load; no RPC may have failed.
func (l *load) end(t testing.TB) (sent int) {
	t.Helper()
	l.halt()
	if l.failed > 0 {
		t.Errorf("%d of %d RPCs failed, the first ones: %v", l.failed, l.sent, l.errors)
	}
	return l.sent
}

// loaded makes a service greeter of two pods, of which only the first has an endpoint, and RPCs to it. a and b are the addresses
// of the pods.
func (k *kube) loaded(t testing.TB, pods *pods, server string) (a, b string, conn *grpc.ClientConn, l *load) {
	t.Helper()
	k.service("greeter", "8080")
	a, _ = pods.start(t, "a")
	b, _ = pods.start(t, "b")
	k.slice("greeter-1", "greeter", "", 8080, ready(a))
	conn = pods.client(t, server, "xds:///greeter."+k.namespace)
	awaitIDs(t, conn, "a")
	return a, b, conn, startLoad(conn, 2)
}
