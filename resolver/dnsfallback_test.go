package resolver

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
)

// Neither RPCs that wait for ready nor those before the first answer fail.
func TestRPCsThatWaitAreNotFailedByTheMoveToDNS(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	results := make(chan error, 2)
	start := func(opts ...grpc.CallOption) {
		go func() {
			_, err := invoke(testutils.Context(t), s.cc, opts...)
			results <- err
		}()
	}
	start(grpc.WaitForReady(true))
	s.refuse(xdsclient.KindUnreachable)
	s.expectError("unreachable", channels.Undecided, "unreachable")
	s.refuse(xdsclient.KindDoesNotExist)
	start()
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// TestRPCsThatWaitForAConnectionMoveToo: nothing listens at the addresses of DNS.
func TestRPCsThatWaitForAConnectionMoveToo(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	s.dns.Stop()
	s.refuse(xdsclient.KindDoesNotExist)
	s.expectError("DNS leads nowhere", channels.DNS, "connection refused")
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if got, err := invoke(testutils.Context(t), s.cc, grpc.WaitForReady(true)); err != nil || got != s.mesh.ID() {
			t.Errorf("unary: answered by %q, %v", got, err)
		}
	})
	waiting.Go(func() {
		stream, err := testgrpc.NewTestServiceClient(s.cc).FullDuplexCall(testutils.Context(t), grpc.WaitForReady(true))
		if err == nil {
			err = stream.CloseSend()
		}
		if err == nil {
			_, err = stream.Recv()
		}
		if err != io.EOF {
			t.Errorf("streaming: %v", err)
		}
	})
	s.serve()
	waiting.Wait()
	s.expectMode("at the end", channels.XDS)
}

func awaitIdle(t *testing.T, cc *grpc.ClientConn) {
	t.Helper()
	ctx := testutils.Context(t)
	for state := cc.GetState(); state != connectivity.Idle; state = cc.GetState() {
		if !cc.WaitForStateChange(ctx, state) {
			t.Fatalf("the channel stays %v", state)
		}
	}
}

func TestModeOutlivesIdlePeriods(t *testing.T) {
	t.Parallel()
	// On a busy machine the channel may be idle at any time, also before it has a configuration.
	s := newStandIn(t, grpc.WithIdleTimeout(100*time.Millisecond))
	s.keepRefusing(xdsclient.KindDoesNotExist)
	s.expect("without a Listener", s.dns, channels.DNS)
	s.keepAnswering(nil)
	since, lines := s.status().Since, logged.Count(s.cc.Target(), "resolved by DNS")
	for range 3 {
		awaitIdle(t, s.cc)
		// The control plane has not answered again.
		s.expect("after an idle period", s.dns, channels.DNS)
	}
	if got := s.status().Since; got != since {
		t.Errorf("in the mode since %v, want %v", got, since)
	}
	xdstest.Equal(t, "how often the fallback was logged again",
		0, logged.Count(s.cc.Target(), "resolved by DNS")-lines)
	s.keepServing()
	for backend := ""; backend != s.mesh.ID(); {
		var err error
		backend, err = invoke(testutils.Context(t), s.cc)
		xdstest.NoError(t, err)
	}
	s.expectMode("with xDS", channels.XDS)
	awaitIdle(t, s.cc)
	s.keepRefusing(xdsclient.KindDoesNotExist)
	s.expectError("after an idle period", channels.XDS, "because the test says so")
}

func TestFallbackAndReturnAreLoggedOnceWithTheirReason(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	// Ports, and so targets, may be reused.
	fallback := func() int { return logged.Count(s.cc.Target(), "resolved by DNS", "because the test says so") }
	move := func() int { return logged.Count(s.cc.Target(), "configured by xDS, no longer by DNS", "Listener") }
	fallbacks, moves := fallback(), move()
	for range 3 {
		s.refuse(xdsclient.KindDoesNotExist)
	}
	s.expect("without a Listener", s.dns, channels.DNS)
	for range 3 {
		s.serve()
	}
	s.expect("with xDS", s.mesh, channels.XDS)
	xdstest.Equal(t, "how often the fallback was logged", 1, fallback()-fallbacks)
	xdstest.Equal(t, "how often the move was logged", 1, move()-moves)
}

func TestClosingWhileOnDNS(t *testing.T) {
	t.Parallel()
	for range 20 {
		s := newStandIn(t)
		s.cc.Connect()
		w := s.watcher(t, s.listener())
		var racing sync.WaitGroup
		racing.Go(func() { w.ResourceChanged(nil, failure(xdsclient.KindDoesNotExist, "x"), func() {}) })
		racing.Go(func() { _, _ = invoke(testutils.Context(t), s.cc) })
		racing.Go(func() { s.cc.Close() })
		racing.Wait()
	}
}

// TestMoveUnderLoad: RPCs of both kinds run while the channel moves, beside
// streams that stay open on the connections that DNS gave.
func TestMoveUnderLoad(t *testing.T) {
	t.Parallel()
	for i := range 10 {
		s := newStandIn(t)
		s.refuse(xdsclient.KindDoesNotExist)
		ctx := testutils.Context(t)
		long, err := testgrpc.NewTestServiceClient(s.cc).FullDuplexCall(ctx)
		xdstest.NoError(t, err)
		loadCtx, stop := context.WithCancel(ctx)
		var load sync.WaitGroup
		for range 8 {
			load.Go(func() {
				for loadCtx.Err() == nil {
					rpc, cancel := context.WithTimeout(ctx, 10*time.Second)
					if _, err := invoke(rpc, s.cc); err != nil {
						t.Errorf("move %d: %v", i, err)
						stop()
					}
					cancel()
				}
			})
		}
		if err := s.dns.Wait(ctx, 100); err != nil {
			t.Error(err)
		}
		s.serve()
		if err := s.mesh.Wait(ctx, 100); err != nil {
			t.Error(err)
		}
		stop()
		load.Wait()
		if err := long.CloseSend(); err != nil {
			t.Error(err)
		}
		if _, err := long.Recv(); err != io.EOF {
			t.Errorf("move %d: the stream that was open before ended with %v", i, err)
		}
	}
}

func TestChannelsListsTheOpenOnes(t *testing.T) {
	t.Parallel()
	one, two := newStandIn(t), newStandIn(t)
	one.refuse(xdsclient.KindDoesNotExist)
	two.serve()
	find := func(target string) int {
		for i, c := range channels.All() {
			if c.Target == target {
				return i
			}
		}
		return -1
	}
	if i, j := find(one.cc.Target()), find(two.cc.Target()); i < 0 || j < 0 || i > j {
		t.Errorf("the channels are at %d and %d, want both, in the order of use", i, j)
	}
	one.cc.Close()
	if find(one.cc.Target()) >= 0 || find(two.cc.Target()) < 0 {
		t.Error("closing one channel did not remove it, and it alone")
	}
}
