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

// request_mirror_policies: each policy sends a mirror with the messages and metadata of the
// RPC, and "-shadow" in its authority.
func TestMirrorsGetMessagesAndMetadata(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		var m mirrorServer
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(2)}, handle: m.handle})
		ctx := metadata.AppendToOutgoingContext(testutils.Context(t), "k", "v")
		r := w.makeRPC(ctx, k, "/s/m", []string{"one ", "two"})
		want := "one two"
		if k.desc == nil || !k.desc.ClientStreams {
			want = "one "
		}
		if r.err != nil || !slices.Equal(r.replies, []string{want}) {
			t.Errorf("the RPC: %q, %v", r.replies, r.err)
		}
		xdstest.Equal(t, "the mirrors", []string{want, want}, m.await(t, 2))
		for _, rpc := range w.seen() {
			if rpc.method != "/s/m" || !slices.Equal(rpc.md["k"], []string{"v"}) || rpc.authority != "service" && rpc.authority != "service-shadow" {
				t.Errorf("the server saw %+v", rpc)
			}
		}
	})
}

func TestMirrorFraction(t *testing.T) {
	t.Parallel()
	none := uint32(0)
	route := mirrored(2)
	route.Mirrors[0].FractionPerMillion = &none
	var m mirrorServer
	w := newWorld(t, worldConfig{routes: []*xdsresource.Route{route}, handle: m.handle})
	w.makeRPC(testutils.Context(t), kinds[0], "/s/m", []string{"x"})
	m.await(t, 1)
	xdstest.Equal(t, "RPCs (the RPC and one mirror)", 2, len(w.seen()))
}

// The application may reuse its message after SendMsg or the unary RPC.
func TestMirrorsOfAReusedMessage(t *testing.T) {
	t.Parallel()
	var m mirrorServer
	release := make(chan struct{})
	w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: func(n int, s grpc.ServerStream) error {
		if md, _ := metadata.FromIncomingContext(s.Context()); md[":authority"][0] == "service-shadow" {
			<-release
		}
		return m.handle(n, s)
	}})
	s, err := w.s.Stream(testutils.Context(t), kinds[2].desc, w.cc, "/s/m", plainStreamer, nil)
	xdstest.NoError(t, err)
	msg := bytesOf("")
	for i := range 10 {
		msg.Value = fmt.Append(msg.Value[:0], i)
		xdstest.NoError(t, s.SendMsg(msg))
	}
	msg.Value[0] = 'x'
	_ = s.CloseSend()
	xdstest.NoError(t, s.RecvMsg(bytesOf("")))
	close(release)
	if got := m.await(t, 1); got[0] != "0123456789" {
		t.Errorf("the mirror got %q", got[0])
	}
}

// A mirror that fails, hangs or does not read does not affect the RPC.
func TestAMirrorDoesNotAffectTheRPC(t *testing.T) {
	t.Parallel()
	for name, mirror := range map[string]func(grpc.ServerStream) error{
		"fails": func(grpc.ServerStream) error { return status.Error(codes.Internal, "the mirror failed") },
		"hangs": func(s grpc.ServerStream) error { <-s.Context().Done(); return nil },
		"talks": func(s grpc.ServerStream) error {
			for s.SendMsg(bytesOf(strings.Repeat("x", 10000))) == nil {
			}
			return nil
		},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				m := mirrorServer{mirror: mirror}
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle})
				var requests []string
				for range 200 {
					requests = append(requests, strings.Repeat("y", 10000))
				}
				r := w.makeRPC(testutils.Context(t), k, "/s/m", requests)
				if r.err != nil || len(r.finished) != 1 {
					t.Errorf("the RPC: %v, OnFinish %v", r.err, r.finished)
				}
				if name == "hangs" && k.desc != nil && k.desc.ClientStreams && w.ch.MirrorsDropped() != 1 {
					t.Errorf("%d mirrors were dropped, want the one that did not keep up", w.ch.MirrorsDropped())
				}
			})
		})
	}
}

func TestMirrorsInFlightAreBounded(t *testing.T) {
	t.Parallel()
	m := mirrorServer{mirror: func(s grpc.ServerStream) error { <-s.Context().Done(); return nil }}
	w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle})
	ctx := testutils.Context(t)
	const n = 300
	for range n {
		xdstest.NoError(t, w.makeRPC(ctx, kinds[0], "/s/m", []string{"x"}).err)
	}
	const bound = 256
	xdstest.Equal(t, "mirrors dropped", n-bound, w.ch.MirrorsDropped())
}

// await waits until a mirror has ended.
func await(t *testing.T, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-testutils.Context(t).Done():
		t.Fatal("the mirror does not end")
	}
}

// A mirror ends with the RPC's deadline, not with its context.
func TestAMirrorEndsWithTheDeadline(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		ended := make(chan struct{}, 1)
		m := mirrorServer{mirror: func(s grpc.ServerStream) error {
			if _, ok := s.Context().Deadline(); !ok {
				t.Error("the mirror has no deadline")
			}
			<-s.Context().Done()
			ended <- struct{}{}
			return nil
		}}
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		deadline, _ := ctx.Deadline()
		xdstest.NoError(t, w.makeRPC(ctx, k, "/s/m", []string{"x"}).err)
		w.await(t, 2)
		cancel()
		await(t, ended)
		if time.Now().Before(deadline.Add(-50 * time.Millisecond)) {
			t.Error("the mirror ended with the RPC's context")
		}
	})
}

// A mirror of an RPC without a deadline ends 15 s after the RPC.
func TestAMirrorEndsAfterAnRPCWithoutADeadline(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan struct{})
			m := mirrorServer{mirror: func(s grpc.ServerStream) error {
				<-s.Context().Done()
				close(ended)
				return nil
			}}
			w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle})
			xdstest.NoError(t, w.makeRPC(context.Background(), k, "/s/m", []string{"x"}).err)
			w.await(t, 2)
			began := time.Now()
			<-ended
			xdstest.Equal(t, "time after the RPC", 15*time.Second, time.Since(began))
		})
	})
}

func TestMirrorsEndWithTheChannel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{}, len(kinds))
		m := mirrorServer{mirror: func(s grpc.ServerStream) error {
			<-s.Context().Done()
			ended <- struct{}{}
			return nil
		}}
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle})
		for _, k := range kinds {
			xdstest.NoError(t, w.makeRPC(context.Background(), k, "/s/m", []string{"x"}).err)
		}
		w.await(t, 2*len(kinds))
		w.ch.Close()
		synctest.Wait()
		xdstest.Equal(t, "mirrors that have ended at once", len(kinds), len(ended))
	})
}

func TestAMirrorToAnUnknownClusterIsDropped(t *testing.T) {
	t.Parallel()
	route := toC()
	route.Mirrors = []xdsresource.Mirror{{Header: "to"}}
	w := newWorld(t, worldConfig{routes: []*xdsresource.Route{route}})
	for _, to := range []string{"", "unheard-of", "c"} {
		ctx := testutils.Context(t)
		if to != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "to", to)
		}
		xdstest.NoError(t, w.makeRPC(ctx, kinds[0], "/s/m", []string{"x"}).err)
	}
	w.await(t, 4)
	xdstest.Equal(t, "mirrors dropped (the one to an unknown cluster)",
		1, w.ch.MirrorsDropped())
}
