package grpcbridge_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// decidingRunner passes RPCs on with a Decision, as the real one does.
type decidingRunner struct{ fakeRunner }

func (r *decidingRunner) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts []grpc.CallOption) error {
	_ = r.fakeRunner.Unary(ctx, method, req, reply, cc, nil, nil)
	return invoker(&decision.Decision{Context: ctx, Channel: cc, Method: method}, method, req, reply, cc, opts...)
}

func TestAnRPCIsRunOnceHoweverOftenTheInterceptorsArePresent(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, scheme string
		opts         []grpc.DialOption
		want         int
	}{
		{"installed and explicit", scheme, grpcbridge.DialOptions(), 1},
		{"explicit twice, and an RPC with the context of its stream", "unreached", append(grpcbridge.DialOptions(), grpcbridge.DialOptions()...), 2},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			b := newFakeBuilder()
			b.scheme = test.scheme
			// Innermost, so that no RPC reaches gRPC.
			last := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, _, _ any, cc *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
				if _, opened := peer.FromContext(ctx); opened {
					return errors.New("the end of the chain")
				}
				return cc.Invoke(peer.NewContext(ctx, new(peer.Peer)), method, nil, nil)
			})
			opts := test.opts
			if test.scheme != scheme {
				opts = append(opts[:len(opts):len(opts)], last)
			}
			cc := dial(t, b, opts...)
			cc.Connect()
			runner := new(decidingRunner)
			b.next(t).Publish(runner)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := cc.Invoke(ctx, "/s/Unary", nil, nil); err == nil {
				t.Error("the RPC succeeded without a server")
			}
			xdstest.Equal(t, "RPCs of the runner", test.want, len(runner.ran()))
		})
	}
}

func TestInstalledInterceptorsAreInnermostAlsoBesideDialOptions(t *testing.T) {
	t.Parallel()
	b := newFakeBuilder()
	var seen []string
	user := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		seen = append(seen, method)
		return invoker(ctx, "/s/Renamed", req, reply, cc, opts...)
	})
	cc := dial(t, b, append(grpcbridge.DialOptions(), user)...)
	cc.Connect()
	runner := new(fakeRunner)
	b.next(t).Publish(runner)
	xdstest.NoError(t, call(t.Context(), cc, false))
	if len(seen) != 1 || len(runner.ran()) != 1 || runner.ran()[0] != "/s/Renamed" {
		t.Errorf("the application's interceptor saw %v, the runner ran %v", seen, runner.ran())
	}
}

func TestManyChannelsWithOneSetOfDialOptions(t *testing.T) {
	t.Parallel()
	opts := grpcbridge.DialOptions()
	var wg sync.WaitGroup
	for i := range 200 {
		b := newFakeBuilder()
		b.scheme = fmt.Sprintf("unreached%d", i)
		cc := dial(t, b, opts...)
		wg.Go(func() {
			runner := new(fakeRunner)
			done := background(t.Context(), cc, false)
			b.next(t).Publish(runner)
			if err := <-done; err != nil {
				t.Error(err)
			}
			for range 10 {
				if err := call(t.Context(), cc, false); err != nil {
					t.Error(err)
				}
			}
			xdstest.Equal(t, fmt.Sprintf("RPCs on channel %d", i), 11, len(runner.ran()))
		})
	}
	wg.Wait()
}

func TestClosingWhileRPCsArriveNeverHangs(t *testing.T) {
	t.Parallel()
	for range 50 {
		b := newFakeBuilder()
		cc := dial(t, b)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { _ = call(t.Context(), cc, false, grpc.WaitForReady(true)) })
		}
		cc.Close()
		wg.Wait()
		if grpcbridge.Known(cc) {
			t.Fatal("a Channel of a closed channel was left behind")
		}
	}
}
