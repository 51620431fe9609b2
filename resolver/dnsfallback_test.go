package resolver

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
)

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
