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

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/rpctrace"
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
		"has no endpoint": nil,
		"fails":           func(grpc.ServerStream) error { return status.Error(codes.Internal, "the mirror failed") },
		"hangs":           func(s grpc.ServerStream) error { <-s.Context().Done(); return nil },
		"talks": func(s grpc.ServerStream) error {
			for s.SendMsg(bytesOf(strings.Repeat("x", 10000))) == nil {
			}
			return nil
		},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				m := mirrorServer{mirror: mirror}
				var dropped meter
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle, metrics: &dropped})
				w.pick = func(ctx context.Context) error {
					if mirror == nil && decision.FromContext(ctx).Cluster == "m0" {
						return status.Error(codes.Unavailable, "no endpoint")
					}
					return nil
				}
				var requests []string
				for range 200 {
					requests = append(requests, strings.Repeat("y", 10000))
				}
				r := w.makeRPC(testutils.Context(t), k, "/s/m", requests)
				if r.err != nil || len(r.finished) != 1 {
					t.Errorf("the RPC: %v, OnFinish %v", r.err, r.finished)
				}
				if name == "hangs" && k.desc != nil && k.desc.ClientStreams && dropped.mirrorsDropped() != 1 {
					t.Errorf("%v mirrors were dropped, want the one that did not keep up", dropped.mirrorsDropped())
				}
			})
		})
	}
}

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

// A mirror gets the messages that the RPC has sent, and ends with it, if the RPC ends before its request.
func TestAMirrorOfAnRPCThatEndsEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m mirrorServer
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: func(n int, s grpc.ServerStream) error {
			if md, _ := metadata.FromIncomingContext(s.Context()); md[":authority"][0] == "service" {
				return status.Error(codes.NotFound, "early")
			}
			return m.handle(n, s)
		}})
		s, err := w.s.Stream(context.Background(), kinds[3].desc, w.cc, "/s/m", w.streamer, nil)
		xdstest.NoError(t, err)
		want := ""
		for s.SendMsg(bytesOf("x")) == nil {
			want += "x"
			synctest.Wait()
		}
		if err := s.RecvMsg(bytesOf("")); status.Code(err) != codes.NotFound {
			t.Error(err)
		}
		synctest.Wait()
		xdstest.Equal(t, "requests of mirrors", []string{want}, m.received)
	})
}

// What waits for a mirror is bounded, in bytes too; one message may be larger.
func TestBytesThatWaitForAMirror(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name           string
		messages, size int
		reads          bool // the mirror does
		dropped        float64
	}{
		{"few", 9, 100 << 10, false, 0}, {"many", 20, 100 << 10, false, 1}, {"many that are read", 20, 100 << 10, true, 0},
		{"a large one", 1, 3 << 20, false, 0},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := mirrorServer{mirror: func(s grpc.ServerStream) error {
					if test.reads {
						_, _ = receiveAll(s)
					}
					<-s.Context().Done()
					return nil
				}}
				var dropped meter
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle, metrics: &dropped})
				s, err := w.s.Stream(context.Background(), kinds[2].desc, w.cc, "/s/m", w.streamer, nil)
				xdstest.NoError(t, err)
				for i := range test.messages {
					xdstest.NoError(t, s.SendMsg(bytesOf(strings.Repeat("x", test.size))))
					if i%5 == 4 {
						synctest.Wait()
					}
				}
				xdstest.NoError(t, s.CloseSend())
				xdstest.NoError(t, s.RecvMsg(bytesOf("")))
				xdstest.Equal(t, "mirrors dropped", test.dropped, dropped.mirrorsDropped())
			})
		})
	}
}

// A message that only gRPC can send ends a mirror, or prevents it.
func TestAMirrorThatCannotBeComplete(t *testing.T) {
	t.Parallel()
	eachKindInABubble(t, func(t *testing.T, k kind) {
		ended := make(chan struct{}, 1)
		m := mirrorServer{mirror: func(s grpc.ServerStream) error {
			<-s.Context().Done()
			ended <- struct{}{}
			return nil
		}}
		var log traceLog
		var dropped meter
		w := newWorld(t, worldConfig{routes: named(mirrored(1)), vh: traceHost, handle: m.handle, metrics: &dropped})
		ctx := rpctrace.With(context.Background(), log.trace())
		if k.desc == nil {
			err := w.s.Unary(ctx, "/s/m", "not a proto.Message", bytesOf(""), w.cc, w.invoker, nil)
			if status.Code(err) != codes.Internal {
				t.Error(err)
			}
			log.expect(t, routedToC, "mirror to m0, dropped false", "attempt 1 to c: Internal")
		} else {
			s, err := w.s.Stream(ctx, k.desc, w.cc, "/s/m", w.streamer, nil)
			xdstest.NoError(t, err)
			w.await(t, 2)
			var prepared grpc.PreparedMsg
			xdstest.NoError(t, prepared.Encode(s, bytesOf("x")))
			xdstest.NoError(t, s.SendMsg(&prepared))
			synctest.Wait()
			xdstest.Equal(t, "mirrors that have ended", 1, len(ended))
			xdstest.NoError(t, s.CloseSend())
			xdstest.NoError(t, s.RecvMsg(bytesOf("")))
		}
		xdstest.Equal(t, "mirrors dropped", 1, dropped.mirrorsDropped())
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
