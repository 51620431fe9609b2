package configselector_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/configselector"
	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// closing counts the instances of a filter and the RPCs in them.
type closing struct {
	made, closed atomic.Int64
	late         atomic.Int64 // RPCs that ran in a closed instance
}

type closingInstance struct {
	c      *closing
	closed atomic.Bool
	times  atomic.Int64
}

func (c *closing) entry(name, typeName string) httpfilter.Instance {
	return httpfilter.Instance{Name: name, Filter: &testFilter{
		typeURL: "type.googleapis.com/test." + typeName,
		build: func(string) httpfilter.ClientInstance {
			c.made.Add(1)
			return &closingInstance{c: c}
		},
	}}
}

func (in *closingInstance) Close() {
	in.c.closed.Add(1)
	if in.times.Add(1) > 1 {
		panic("closed twice")
	}
	in.closed.Store(true)
}

func (in *closingInstance) ClientInterceptor(_, _ httpfilter.Config) (httpfilter.Interceptor, error) {
	return httpfilter.InterceptorFunc(func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
		s, err := next.NewStream(ctx, rpc)
		return &lateStream{s, in}, err
	}), nil
}

// lateStream notices use after Close.
type lateStream struct {
	grpc.ClientStream
	in *closingInstance
}

func (s *lateStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if s.in.closed.Load() {
		s.in.c.late.Add(1)
	}
	return err
}

func (w *world) replace(l xdsresource.Listener) {
	w.s = w.ch.NewSelector(configselector.Config{Version: w.s.Version() + 1, Listener: &l, VirtualHost: &xdsresource.VirtualHost{Routes: []*xdsresource.Route{toC()}}, Last: w.s})
}

// end has no configuration in use any more.
func (w *world) end() { w.s = nil }

// awaitClosed waits until n instances are closed. The garbage collector has them closed, so it has to run.
func (c *closing) awaitClosed(t testing.TB, what string, n int64) {
	t.Helper()
	for ctx := testutils.Context(t); c.closed.Load() != n; runtime.GC() {
		if ctx.Err() != nil {
			t.Fatalf("%s: %d instances are closed, want %d", what, c.closed.Load(), n)
		}
	}
}

// staysClosed fails if the garbage collector has more than n instances closed.
func (c *closing) staysClosed(t testing.TB, what string, n int64) {
	t.Helper()
	for range 5 {
		runtime.GC()
	}
	if got := c.closed.Load(); got != n {
		t.Errorf("%s: %d instances are closed, want %d", what, got, n)
	}
}

func TestAnInstanceStaysWhileNameAndTypeStay(t *testing.T) {
	t.Parallel()
	var c closing
	w := newWorld(t, worldConfig{listener: chainOf(c.entry("a", "T"), c.entry("b", "T"))})
	for _, step := range []struct {
		name         string
		filters      []httpfilter.Instance
		made, closed int64
	}{
		{"the same", []httpfilter.Instance{c.entry("a", "T"), c.entry("b", "T")}, 2, 0},
		{"reordered", []httpfilter.Instance{c.entry("b", "T"), c.entry("a", "T")}, 2, 0},
		{"one removed", []httpfilter.Instance{c.entry("b", "T")}, 2, 1},
		{"the name of another type", []httpfilter.Instance{c.entry("b", "U")}, 3, 2},
		{"none", nil, 3, 3},
	} {
		w.replace(chainOf(step.filters...))
		xdstest.Equal(t, step.name+": instances made", step.made, c.made.Load())
		c.awaitClosed(t, step.name, step.closed)
		c.staysClosed(t, step.name, step.closed)
	}
}

func TestCloseWaitsForTheLastRPC(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		var c closing
		release := make(chan struct{})
		w := newWorld(t, worldConfig{
			listener: chainOf(c.entry("a", "T")),
			handle: func(_ int, s grpc.ServerStream) error {
				<-release
				return echo(s)
			},
		})
		ctx := testutils.Context(t)
		done := make(chan *result)
		go func() { done <- w.makeRPC(ctx, k, "/s/m", []string{"x"}) }()
		w.await(t, 1)
		w.replace(chainOf())
		c.staysClosed(t, "while an RPC runs", 0)
		close(release)
		xdstest.NoError(t, (<-done).err)
		c.awaitClosed(t, "after the RPC", 1)
	})
}

// A stream whose application stopped reading ends with its context, and with the channel.
func TestCloseDoesNotWaitForAnApplicationThatStoppedReading(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"context", "channel"} {
		xdstest.Parallel(t, how, func(t *testing.T) {
			var c closing
			w := newWorld(t, worldConfig{listener: chainOf(c.entry("a", "T")), handle: func(_ int, s grpc.ServerStream) error {
				<-s.Context().Done()
				return nil
			}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			finished := make(chan error, 2)
			_, err := w.s.Stream(ctx, kinds[3].desc, w.cc, "/s/m", plainStreamer, []grpc.CallOption{grpc.OnFinish(func(err error) { finished <- err })})
			xdstest.NoError(t, err)
			w.await(t, 1)
			if how == "context" {
				cancel()
			} else {
				w.cc.Close()
			}
			if err := <-finished; status.Code(err) != codes.Canceled {
				t.Errorf("OnFinish got %v", err)
			}
			w.end()
			c.awaitClosed(t, "after the RPC", 1)
		})
	}
}

// An interceptor of the application below those of dynxds may refuse a stream before gRPC sees it.
func TestCloseDoesNotWaitForARefusedStream(t *testing.T) {
	t.Parallel()
	for _, disabled := range []bool{false, true} { // where nothing else happens to the RPC
		var c closing
		w := newWorld(t, worldConfig{listener: chainOf(c.entry("a", "T")), vh: xdsresource.VirtualHost{
			Overrides: xdsresource.FilterOverrides{"a": {Disabled: disabled}},
		}})
		refused := status.Error(codes.PermissionDenied, "refused")
		_, err := w.s.Stream(testutils.Context(t), kinds[3].desc, w.cc, "/s/m", func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
			return nil, refused
		}, nil)
		if err != refused {
			t.Errorf("disabled: %v: error = %v, want %v", disabled, err, refused)
		}
		w.end()
		c.awaitClosed(t, fmt.Sprintf("disabled: %v", disabled), 1)
	}
}

func TestConfigurationsChangeUnderRPCs(t *testing.T) {
	t.Parallel()
	var c closing
	w := newWorld(t, worldConfig{listener: chainOf(c.entry("a", "T"))})
	var current atomic.Pointer[configselector.Selector]
	current.Store(w.s)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			k := kinds[i%len(kinds)]
			for {
				select {
				case <-stop:
					return
				default:
				}
				// As the interceptors do.
				one := &world{cc: w.cc, s: current.Load()}
				if r := one.makeRPC(context.Background(), k, "/s/m", []string{"x"}); r.err != nil {
					t.Errorf("%s: %v", k.name, r.err)
					return
				}
			}
		})
	}
	for i := range 200 {
		names := []string{"a", "b", "c", "d"}[i%4 : min(i%4+1+i%3, 4)]
		var filters []httpfilter.Instance
		for _, name := range names {
			filters = append(filters, c.entry(name, []string{"T", "U"}[i/8%2]))
		}
		w.replace(chainOf(filters...))
		current.Store(w.s)
		if i%20 == 0 {
			runtime.GC()
		}
	}
	close(stop)
	wg.Wait()
	current.Store(nil)
	w.end()
	c.awaitClosed(t, "after all", c.made.Load())
	xdstest.Equal(t, "RPCs in closed instances", 0, c.late.Load())
}
