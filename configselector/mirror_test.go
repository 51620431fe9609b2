package configselector_test

import (
	"context"
	"errors"
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

	"github.com/dynxds/dynxds/httpfilter"
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

// request_mirror_policies: each policy sends a mirror with the messages and metadata of the
// RPC, and "-shadow" in its authority.
func TestMirrorsGetMessagesAndMetadata(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		var m mirrorServer
		wraps := chainOf(filterOf("wraps", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
			s, err := next.NewStream(ctx, rpc)
			return struct{ grpc.ClientStream }{s}, err
		}))
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(2)}, handle: m.handle, listener: wraps})
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
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle})
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
				if name == "hangs" && k.desc != nil && k.desc.ClientStreams && w.ch.MirrorsDropped() != 1 {
					t.Errorf("%d mirrors were dropped, want the one that did not keep up", w.ch.MirrorsDropped())
				}
			})
		})
	}
}

func TestMirrorsInFlightAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := mirrorServer{mirror: func(s grpc.ServerStream) error { <-s.Context().Done(); return nil }}
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle})
		const n, bound = 300, 256
		for range n { // These are dropped before they run.
			if err := w.s.Unary(t.Context(), "/s/m", "not a proto.Message", bytesOf(""), w.cc, w.invoker, nil); status.Code(err) != codes.Internal {
				t.Fatal(err)
			}
		}
		before := w.ch.MirrorsDropped()
		for round := range int64(2) {
			for i := range n {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				xdstest.NoError(t, w.makeRPC(ctx, kinds[i%len(kinds)], "/s/m", []string{"x"}).err)
				cancel()
			}
			xdstest.Equal(t, "mirrors dropped", (round+1)*(n-bound), w.ch.MirrorsDropped()-before)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
	})
}

// A mirror ends with the RPC's deadline, not with its context.
func TestAMirrorEndsWithTheDeadline(t *testing.T) {
	t.Parallel()
	eachKindInABubble(t, func(t *testing.T, k kind) {
		ended := make(chan struct{})
		m := mirrorServer{mirror: func(s grpc.ServerStream) error {
			<-s.Context().Done()
			close(ended)
			return nil
		}}
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		began := time.Now()
		xdstest.NoError(t, w.makeRPC(ctx, k, "/s/m", []string{"x"}).err)
		w.await(t, 2)
		cancel()
		<-ended
		xdstest.Equal(t, "time of the mirror", time.Minute, time.Since(began))
	})
}

// A mirror of an RPC without a deadline ends 15 s after the RPC. It has the whole request when the RPC has.
func TestAMirrorEndsAfterAnRPCWithoutADeadline(t *testing.T) {
	t.Parallel()
	eachKindInABubble(t, func(t *testing.T, k kind) {
		var complete, ended time.Time
		m := mirrorServer{mirror: func(s grpc.ServerStream) error {
			_, err := receiveAll(s)
			complete = time.Now()
			<-s.Context().Done()
			ended = time.Now()
			return err
		}}
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: func(n int, s grpc.ServerStream) error {
			err := m.handle(n, s)
			time.Sleep(20 * time.Second)
			return err
		}})
		began := time.Now()
		xdstest.NoError(t, w.makeRPC(context.Background(), k, "/s/m", []string{"x"}).err)
		time.Sleep(time.Minute)
		synctest.Wait()
		xdstest.Equal(t, "times of the end of the request, and of the mirror", []time.Duration{0, 35 * time.Second},
			[]time.Duration{complete.Sub(began), ended.Sub(began)})
	})
}

// A mirror that a filter starts after the RPC, by a clone, ends too.
func TestAMirrorOfALateClone(t *testing.T) {
	t.Parallel()
	eachKindInABubble(t, func(t *testing.T, k kind) {
		over := make(chan struct{})
		late := filterOf("late", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
			clone := rpc.Clone()
			go func() {
				<-over
				if s, err := next.NewStream(context.WithoutCancel(ctx), clone); err == nil {
					err = httpfilter.Exchange(s, bytesOf("late"), bytesOf(""))
					xdstest.NoError(t, err)
				}
			}()
			return next.NewStream(ctx, rpc)
		})
		ends := make(chan string, 2)
		m := mirrorServer{mirror: func(s grpc.ServerStream) error {
			all, _ := receiveAll(s)
			<-s.Context().Done()
			ends <- all
			return nil
		}}
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle, listener: chainOf(late)})
		xdstest.NoError(t, w.makeRPC(context.Background(), k, "/s/m", []string{"x"}).err)
		time.Sleep(5 * time.Second)
		close(over)
		time.Sleep(11 * time.Second)
		xdstest.Equal(t, "mirrors that have ended 16 s after the RPC", 1, len(ends))
		time.Sleep(5 * time.Second)
		xdstest.Equal(t, "mirrors that have ended 21 s after the RPC", 2, len(ends))
		xdstest.Equal(t, "requests", []string{"x", "late"}, []string{<-ends, <-ends})
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

// A mirror may answer for as long as it may run.
func TestAMirrorIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		m := mirrorServer{mirror: func(s grpc.ServerStream) error {
			for range 3 {
				_ = s.SendMsg(bytesOf("x"))
				time.Sleep(time.Second)
			}
			ended <- s.Context().Err()
			return nil
		}}
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle})
		xdstest.NoError(t, w.makeRPC(context.Background(), kinds[1], "/s/m", []string{"x"}).err)
		xdstest.NoError(t, <-ended)
	})
}

// What waits for a mirror is bounded, in bytes too; one message may be larger.
func TestBytesThatWaitForAMirror(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name           string
		messages, size int
		reads          bool // the mirror does
		dropped        int64
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
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle})
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
				xdstest.Equal(t, "mirrors dropped", test.dropped, w.ch.MirrorsDropped())
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
		w := newWorld(t, worldConfig{routes: named(mirrored(1)), vh: traceHost, handle: m.handle})
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
		xdstest.Equal(t, "mirrors dropped", 1, w.ch.MirrorsDropped())
	})
}

// request_mirror_policies.host_rewrite_literal and disable_shadow_host_suffix_append; with TLS no certificate would match the suffix.
func TestAuthorityOfMirrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		mirror xdsresource.Mirror
		host   string // host_rewrite_literal of the route
		secure bool
		opts   []grpc.CallOption
		want   string
	}{
		{name: "as the RPC", want: "service"},
		{name: "with the suffix", mirror: xdsresource.Mirror{ShadowSuffix: true}, want: "service-shadow"},
		{name: "as the RPC, whose authority is rewritten", mirror: xdsresource.Mirror{ShadowSuffix: true}, host: "other", want: "other-shadow"},
		{name: "with TLS", mirror: xdsresource.Mirror{ShadowSuffix: true}, secure: true, want: "service"},
		{name: "its own", mirror: xdsresource.Mirror{Authority: "mirror", ShadowSuffix: true}, want: "mirror"},
		{name: "the application's", opts: []grpc.CallOption{grpc.CallAuthority("mine")}, want: "mine"},
		{name: "the channel's, not the application's", mirror: xdsresource.Mirror{Authority: "service"}, opts: []grpc.CallOption{grpc.CallAuthority("mine")}, want: "service"},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			route := toC()
			test.mirror.Cluster = "m"
			route.Mirrors = []xdsresource.Mirror{test.mirror}
			route.Rewrite = &xdsresource.Rewrite{Authority: test.host}
			w := newWorld(t, worldConfig{routes: []*xdsresource.Route{route}, secure: test.secure})
			ctx := metadata.AppendToOutgoingContext(testutils.Context(t), "k", "v")
			w.pick = func(ctx context.Context) error {
				d := decision.FromContext(ctx)
				if d.Cluster == "c" {
					return errors.New("only the mirror is sent")
				}
				// The picker of another version sends the mirror to the same cluster, and the mirror has no trace.
				if again, err := w.s.Reselect(d); again != "m" || err != nil || d.Trace() != nil {
					t.Errorf("the mirror is routed again to %q, %v, and has trace %v", again, err, d.Trace())
				}
				return nil
			}
			w.makeRPC(rpctrace.With(ctx, new(rpctrace.Trace)), kinds[0], "/s/m", []string{"x"}, test.opts...)
			xdstest.Equal(t, "authority", test.want, w.await(t, 1)[0].authority)
		})
	}
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
	var m meter
	w := newWorld(t, worldConfig{routes: []*xdsresource.Route{route}, metrics: &m})
	for _, to := range []string{"", "unheard-of", "c"} {
		ctx := testutils.Context(t)
		if to != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "to", to)
		}
		xdstest.NoError(t, w.makeRPC(ctx, kinds[0], "/s/m", []string{"x"}).err)
	}
	w.await(t, 4)
	xdstest.Equal(t, "mirrors dropped (the one to an unknown cluster)", 1, w.ch.MirrorsDropped())
	m.expect(t, map[string]float64{"dynxds.mirror.dropped passthrough:///bufconn": 1})
}
