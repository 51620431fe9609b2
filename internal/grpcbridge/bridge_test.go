package grpcbridge_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestRPCBeforeTheFirstConfigurationWaitsAndWakesTheChannel(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, streaming bool) {
		b := newFakeBuilder()
		cc := dial(t, b)
		done := background(t.Context(), cc, streaming)
		r := b.next(t)
		runner := new(fakeRunner)
		r.Publish(runner)
		if err := ended(t, done); err != nil {
			t.Errorf("RPC failed: %v", err)
		}
		xdstest.Equal(t, "RPCs that the runner ran", 1, len(runner.ran()))
	})
}

func TestWaitingEndsAtOnce(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, streaming bool) {
		t.Run("with the deadline", func(t *testing.T) {
			b := newFakeBuilder()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			err := call(ctx, dial(t, b), streaming)
			wantStatus(t, err, codes.DeadlineExceeded, "waiting for the xDS configuration", scheme+":///service.example.com")
		})
		t.Run("with cancellation", func(t *testing.T) {
			b := newFakeBuilder()
			ctx, cancel := context.WithCancel(t.Context())
			done := background(ctx, dial(t, b), streaming)
			b.next(t)
			cancel()
			wantStatus(t, ended(t, done), codes.Canceled, "waiting for the xDS configuration")
		})
		t.Run("when the channel closes", func(t *testing.T) {
			b := newFakeBuilder()
			cc := dial(t, b)
			done := background(t.Context(), cc, streaming, grpc.WaitForReady(true))
			b.next(t)
			cc.Close()
			wantStatus(t, ended(t, done), codes.Canceled, "closing")
		})
		t.Run("on a closed channel", func(t *testing.T) {
			cc := dial(t, newFakeBuilder())
			cc.Close()
			wantStatus(t, call(t.Context(), cc, streaming), codes.Canceled, "closing")
		})
		t.Run("with a resolver error", func(t *testing.T) {
			b := newFakeBuilder()
			done := background(t.Context(), dial(t, b), streaming)
			b.next(t).Fail(errors.New("Listener was not found"))
			wantStatus(t, ended(t, done), codes.Unavailable, "Listener was not found")
		})
	})
}

func TestWaitForReadyOutlastsAResolverError(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, streaming bool) {
		b := newFakeBuilder()
		cc := dial(t, b)
		ready := background(t.Context(), cc, streaming, grpc.WaitForReady(true))
		r := b.next(t)
		failing := background(t.Context(), cc, streaming)
		r.Fail(errors.New("the reason"))
		wantStatus(t, ended(t, failing), codes.Unavailable, "the reason")

		// An RPC that stops waiting still gets the error.
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		wantStatus(t, call(ctx, cc, streaming, grpc.WaitForReady(true)), codes.DeadlineExceeded, "the reason")

		r.Publish(new(fakeRunner))
		if err := ended(t, ready); err != nil {
			t.Errorf("wait-for-ready RPC failed: %v", err)
		}
	})
}

func TestTheLastWaitForReadyOptionWins(t *testing.T) {
	t.Parallel()
	b := newFakeBuilder()
	cc := dial(t, b, grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	done := background(t.Context(), cc, false, grpc.WaitForReady(false))
	b.next(t).Fail(errors.New("the reason"))
	wantStatus(t, ended(t, done), codes.Unavailable, "the reason")
}

func TestRPCThatEndsBeforeItStartsCallsOnFinish(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, streaming bool) {
		b := newFakeBuilder()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var finished []error
		err := call(ctx, dial(t, b), streaming, grpc.OnFinish(func(err error) { finished = append(finished, err) }))
		if len(finished) != 1 || finished[0] != err {
			t.Errorf("OnFinish got %v, want once %v", finished, err)
		}
	})
}

func TestAResolverThatCannotBeBuiltFailsRPCs(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, streaming bool) {
		b := newFakeBuilder()
		b.err = errors.New("bootstrap.json: xds_servers is missing")
		cc := dial(t, b)
		for range 3 {
			wantStatus(t, call(t.Context(), cc, streaming), codes.Unavailable, "xds_servers is missing")
		}
		done := background(t.Context(), cc, streaming, grpc.WaitForReady(true))
		cc.Close()
		wantStatus(t, ended(t, done), codes.Canceled, "closing")
	})
}

func TestIdleAndBack(t *testing.T) {
	t.Parallel()
	b := newFakeBuilder()
	cc := dial(t, b, grpc.WithIdleTimeout(50*time.Millisecond))
	var first, second fakeRunner
	done := background(t.Context(), cc, false)
	r := b.next(t)
	r.Publish(&first)
	xdstest.NoError(t, ended(t, done))
	select {
	case <-r.closed:
	case <-time.After(patience):
		t.Fatal("the channel does not go idle")
	}
	// gRPC says that it is idle before it has closed the resolver.
	for deadline := time.Now().Add(patience); grpcbridge.Known(cc); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the idle channel keeps its Channel")
		}
	}
	done = background(t.Context(), cc, false)
	b.next(t).Publish(&second)
	xdstest.NoError(t, ended(t, done))
	if len(first.ran()) != 1 || len(second.ran()) != 1 {
		t.Errorf("the runners ran %v and %v, want one RPC each", first.ran(), second.ran())
	}
}

func TestAnRPCThatWaitsWhileTheChannelGoesIdleWakesItAgain(t *testing.T) {
	t.Parallel()
	b := newFakeBuilder()
	cc := dial(t, b, grpc.WithIdleTimeout(50*time.Millisecond))
	done := background(t.Context(), cc, false)
	b.next(t)      // goes idle with no configuration
	r := b.next(t) // is built since the RPC still waits
	for {
		r.Publish(new(fakeRunner))
		select {
		case err := <-done:
			xdstest.NoError(t, err)
			return
		case r = <-b.built: // Idle again before the RPC got there.
		case <-time.After(patience):
			t.Fatal("the RPC did not end")
		}
	}
}

// foreignBuilder is another package's resolver for our scheme.
type foreignBuilder struct{ grpcresolver.Builder }

func (foreignBuilder) Scheme() string { return scheme }

func (foreignBuilder) Build(_ grpcresolver.Target, cc grpcresolver.ClientConn, _ grpcresolver.BuildOptions) (grpcresolver.Resolver, error) {
	cc.ReportError(errors.New("foreign resolver at work"))
	return &foreignResolver{}, nil
}

type foreignResolver struct{ grpcresolver.Resolver }

func (*foreignResolver) Close() {}

func TestAForeignResolverIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]grpc.DialOption{
		"installed": nil,
		"explicit":  grpcbridge.DialOptions(),
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, streaming bool) {
				err := call(t.Context(), dial(t, foreignBuilder{}, opts...), streaming)
				wantStatus(t, err, codes.Unavailable, "foreign resolver at work")
			})
		})
	}
}

func TestDialOptionsServeAChannelThatInstallDoesNotReach(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, streaming bool) {
		b := newFakeBuilder()
		b.scheme = "unreached"
		cc := dial(t, b, grpcbridge.DialOptions()...)
		done := background(t.Context(), cc, streaming)
		runner := new(fakeRunner)
		b.next(t).Publish(runner)
		xdstest.NoError(t, ended(t, done))
		xdstest.Equal(t, "RPCs that the runner ran", 1, len(runner.ran()))
	})
}

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
	}{
		{"installed and explicit", scheme, grpcbridge.DialOptions()},
		{"explicit twice", "unreached", append(grpcbridge.DialOptions(), grpcbridge.DialOptions()...)},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			b := newFakeBuilder()
			b.scheme = test.scheme
			ended := errors.New("the end of the chain")
			// Innermost, so that no RPC reaches gRPC.
			last := grpc.WithChainUnaryInterceptor(func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
				return ended
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
			xdstest.Equal(t, "how often the runner ran the RPC", 1, len(runner.ran()))
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

// A trace gets the wait of an RPC for the first configuration, and none of a later RPC.
func TestTraceOfAWait(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, streaming bool) {
		var mu sync.Mutex
		var waits []rpctrace.ConfigWait
		ctx := rpctrace.With(t.Context(), &rpctrace.Trace{WaitedForConfig: func(w rpctrace.ConfigWait) {
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, w)
		}})
		b := newFakeBuilder()
		cc := dial(t, b)
		failing := background(ctx, cc, streaming)
		r := b.next(t)
		r.Fail(errors.New("the reason"))
		err := ended(t, failing)
		waiting := background(ctx, cc, streaming, grpc.WaitForReady(true))
		r.Publish(new(fakeRunner))
		xdstest.NoError(t, ended(t, waiting))
		xdstest.NoError(t, call(ctx, cc, streaming))
		mu.Lock()
		defer mu.Unlock()
		// The second RPC may have come after the configuration.
		if len(waits) == 0 || len(waits) > 2 || waits[0].Err != err || len(waits) == 2 && waits[1].Err != nil {
			t.Errorf("the trace has %+v, want one with %v", waits, err)
		}
		for _, w := range waits {
			if w.Target != cc.Target() || w.Duration < 0 {
				t.Errorf("a wait of %v for %q", w.Duration, w.Target)
			}
		}
	})
}
