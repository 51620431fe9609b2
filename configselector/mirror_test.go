package configselector_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/experimental/stats/telemetry"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// mirrored is a route with mirrors to clusters "m0", "m1", ….
func mirrored(n int) *xdsresource.Route {
	route := toC()
	for i := range n {
		route.Mirrors = append(route.Mirrors, xdsresource.Mirror{Cluster: fmt.Sprint("m", i), ShadowSuffix: true})
	}
	return route
}

// mirrorServer distinguishes RPCs from their mirrors by the authority.
type mirrorServer struct {
	mirror func(grpc.ServerStream) error // handles mirrors; nil: receive

	xdstest.State
	received []string // by mirrors
}

func (m *mirrorServer) handle(_ int, s grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	if !strings.Contains(md[":authority"][0], "-shadow") {
		return echo(s)
	}
	if m.mirror != nil {
		return m.mirror(s)
	}
	all, err := receiveAll(s)
	if err != nil {
		return err
	}
	m.Change(func() { m.received = append(m.received, all) })
	return s.SendMsg(bytesOf("ignored"))
}

func (m *mirrorServer) await(t *testing.T, n int) (received []string) {
	t.Helper()
	m.Await(t, fmt.Sprint(n, " mirrors"), func() bool {
		received = slices.Clone(m.received)
		return len(received) >= n
	})
	return received
}

// The callbacks for telemetry labels that the application registers get the labels of its RPC
// only (gRFC A89): they must not be called for a mirror, at the same time or after the RPC.
func TestAMirrorHasNoLabelCallbacksOfTheApplication(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		var m mirrorServer
		seen := make(chan bool, 2)
		observe := grpc.WithStatsHandler(contexts(func(ctx context.Context) {
			seen <- grpcbridge.UpdateLabels(ctx, map[string]string{"a": "b"})
		}))
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle, dial: []grpc.DialOption{observe}})
		ctx := telemetry.NewContextWithLabelCallback(testutils.Context(t), func(map[string]string) {})
		xdstest.NoError(t, w.makeRPC(ctx, k, "/s/m", []string{"x"}).err)
		m.await(t, 1)
		if with := []bool{<-seen, <-seen}; with[0] == with[1] {
			t.Errorf("contexts of the RPC and its mirror have the application's callbacks: %v, want one of them", with)
		}
	})
}

// contexts is a stats handler that is called with the context of each attempt.
type contexts func(context.Context)

func (c contexts) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	c(ctx)
	return ctx
}
func (contexts) HandleRPC(context.Context, stats.RPCStats)                         {}
func (contexts) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (contexts) HandleConn(context.Context, stats.ConnStats)                       {}

func TestMirrorsInFlightAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := mirrorServer{mirror: func(s grpc.ServerStream) error { <-s.Context().Done(); return nil }}
		var dropped meter
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle, metrics: &dropped})
		const n, bound = 300, 256
		for range n { // These are dropped before they run.
			if err := w.s.Unary(t.Context(), "/s/m", "not a proto.Message", bytesOf(""), w.cc, w.invoker, nil); status.Code(err) != codes.Internal {
				t.Fatal(err)
			}
		}
		before := dropped.mirrorsDropped()
		xdstest.Equal(t, "mirrors of messages that cannot be encoded", n, before)
		for round := range 2 {
			for i := range n {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				xdstest.NoError(t, w.makeRPC(ctx, kinds[i%len(kinds)], "/s/m", []string{"x"}).err)
				cancel()
			}
			xdstest.Equal(t, "mirrors dropped", float64((round+1)*(n-bound)), dropped.mirrorsDropped()-before)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
	})
}
