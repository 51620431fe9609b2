package configselector_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// mirrored is a route that sends copies to clusters "m0", "m1", ….
func mirrored(n int) *xdsresource.Route {
	route := toC()
	for i := range n {
		route.Mirrors = append(route.Mirrors, xdsresource.Mirror{Cluster: fmt.Sprint("m", i), ShadowSuffix: true})
	}
	return route
}

// mirrorServer tells originals from copies by their authority.
type mirrorServer struct {
	copy func(grpc.ServerStream) error // nil: receive

	xdstest.State
	copies []string // what was received
}

func (m *mirrorServer) handle(_ int, s grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	if !strings.Contains(md[":authority"][0], "-shadow") {
		return echo(s)
	}
	if m.copy != nil {
		return m.copy(s)
	}
	all, err := receiveAll(s)
	if err != nil {
		return err
	}
	m.Change(func() { m.copies = append(m.copies, all) })
	return s.SendMsg(bytesOf("nobody reads this"))
}

func (m *mirrorServer) await(t *testing.T, n int) (copies []string) {
	t.Helper()
	m.Await(t, fmt.Sprint(n, " copies"), func() bool {
		copies = slices.Clone(m.copies)
		return len(copies) >= n
	})
	return copies
}

// request_mirror_policies: every policy gets a copy with the RPC's messages and
// metadata, its authority marked as a shadow's.
func TestMirrorsGetCopies(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		var m mirrorServer
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(2)}, handle: m.handle})
		ctx := metadata.AppendToOutgoingContext(testutils.Context(t), "k", "v")
		r := w.do(ctx, k, "/s/m", []string{"one ", "two"})
		want := "one two"
		if k.desc == nil || !k.desc.ClientStreams {
			want = "one "
		}
		if r.err != nil || !slices.Equal(r.replies, []string{want}) {
			t.Errorf("the original: %q, %v", r.replies, r.err)
		}
		if got := m.await(t, 2); !slices.Equal(got, []string{want, want}) {
			t.Errorf("the copies: %q", got)
		}
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
	w.do(testutils.Context(t), kinds[0], "/s/m", []string{"x"})
	m.await(t, 1)
	if n := len(w.seen()); n != 2 {
		t.Errorf("%d RPCs, want the original and one copy", n)
	}
}

// The application may use its message again when SendMsg has returned, or the
// unary RPC has.
func TestCopiesDoNotSeeWhatTheApplicationDoesToItsMessage(t *testing.T) {
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
	if err != nil {
		t.Fatal(err)
	}
	msg := bytesOf("")
	for i := range 10 {
		msg.Value = fmt.Append(msg.Value[:0], i)
		if err := s.SendMsg(msg); err != nil {
			t.Fatal(err)
		}
	}
	msg.Value[0] = 'x'
	_ = s.CloseSend()
	if err := s.RecvMsg(bytesOf("")); err != nil {
		t.Fatal(err)
	}
	close(release)
	if got := m.await(t, 1); got[0] != "0123456789" {
		t.Errorf("the copy got %q", got[0])
	}
}

// A copy that fails, hangs or does not read changes nothing for the original.
func TestACopyNeverHurtsTheOriginal(t *testing.T) {
	t.Parallel()
	for name, copy := range map[string]func(grpc.ServerStream) error{
		"fails": func(grpc.ServerStream) error { return status.Error(codes.Internal, "the copy failed") },
		"hangs": func(s grpc.ServerStream) error { <-s.Context().Done(); return nil },
		"talks": func(s grpc.ServerStream) error {
			for s.SendMsg(bytesOf(strings.Repeat("x", 10000))) == nil {
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachKind(t, func(t *testing.T, k kind) {
				m := mirrorServer{copy: copy}
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle})
				var requests []string
				for range 200 {
					requests = append(requests, strings.Repeat("y", 10000))
				}
				r := w.do(testutils.Context(t), k, "/s/m", requests)
				if r.err != nil || len(r.finished) != 1 {
					t.Errorf("the original: %v, OnFinish %v", r.err, r.finished)
				}
				if name == "hangs" && k.desc != nil && k.desc.ClientStreams && w.ch.MirrorsDropped() != 1 {
					t.Errorf("%d copies were given up, want the one that did not keep up", w.ch.MirrorsDropped())
				}
			})
		})
	}
}

func TestCopiesUnderWayAreBounded(t *testing.T) {
	t.Parallel()
	m := mirrorServer{copy: func(s grpc.ServerStream) error { <-s.Context().Done(); return nil }}
	w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle})
	ctx := testutils.Context(t)
	const n = 300
	for range n {
		if r := w.do(ctx, kinds[0], "/s/m", []string{"x"}); r.err != nil {
			t.Fatal(r.err)
		}
	}
	const bound = 256
	if got := w.ch.MirrorsDropped(); got != n-bound {
		t.Errorf("%d copies dropped, want %d", got, n-bound)
	}
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

// A copy ends with the original's deadline, and not with its context.
func TestACopyEndsWithTheDeadline(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		ended := make(chan struct{}, 1)
		m := mirrorServer{copy: func(s grpc.ServerStream) error {
			if _, ok := s.Context().Deadline(); !ok {
				t.Error("the copy has no deadline")
			}
			<-s.Context().Done()
			ended <- struct{}{}
			return nil
		}}
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		deadline, _ := ctx.Deadline()
		if r := w.do(ctx, k, "/s/m", []string{"x"}); r.err != nil {
			t.Fatal(r.err)
		}
		w.await(t, 2)
		cancel()
		await(t, ended)
		if time.Now().Before(deadline.Add(-50 * time.Millisecond)) {
			t.Error("the mirror ended when the original's context did")
		}
	})
}

func TestCopiesEndWithTheChannel(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{}, len(kinds))
	m := mirrorServer{copy: func(s grpc.ServerStream) error {
		<-s.Context().Done()
		ended <- struct{}{}
		return nil
	}}
	w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(1)}, handle: m.handle})
	for _, k := range kinds {
		if r := w.do(context.Background(), k, "/s/m", []string{"x"}); r.err != nil {
			t.Fatal(r.err)
		}
	}
	w.await(t, 2*len(kinds))
	w.ch.Close()
	for range kinds {
		await(t, ended)
	}
}

func TestAMirrorToAnUnknownClusterIsDropped(t *testing.T) {
	t.Parallel()
	route := toC()
	route.Mirrors = []xdsresource.Mirror{{Header: "to"}}
	w := newWorld(t, worldConfig{routes: []*xdsresource.Route{route}, handle: echoAll})
	for _, to := range []string{"", "unheard-of", "c"} {
		ctx := testutils.Context(t)
		if to != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "to", to)
		}
		if r := w.do(ctx, kinds[0], "/s/m", []string{"x"}); r.err != nil {
			t.Fatal(r.err)
		}
	}
	w.await(t, 4)
	if n := w.ch.MirrorsDropped(); n != 1 {
		t.Errorf("%d copies dropped, want the one to a cluster that is not there", n)
	}
}
