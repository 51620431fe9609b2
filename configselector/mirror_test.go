package configselector_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsresource"
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

	mu     sync.Mutex
	copies []string // what was received
	news   chan struct{}
}

func (m *mirrorServer) handle(_ int, s grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	if !strings.Contains(md[":authority"][0], "-shadow") {
		return echo(s)
	}
	if m.copy != nil {
		return m.copy(s)
	}
	all := ""
	for {
		msg := new(wrapperspb.BytesValue)
		if err := s.RecvMsg(msg); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		all += string(msg.GetValue())
	}
	m.mu.Lock()
	m.copies = append(m.copies, all)
	if m.news != nil {
		close(m.news)
		m.news = nil
	}
	m.mu.Unlock()
	return s.SendMsg(bytesOf("nobody reads this"))
}

func (m *mirrorServer) await(t *testing.T, n int) []string {
	t.Helper()
	deadline := time.After(patience)
	for {
		m.mu.Lock()
		copies := slices.Clone(m.copies)
		if m.news == nil {
			m.news = make(chan struct{})
		}
		news := m.news
		m.mu.Unlock()
		if len(copies) >= n {
			return copies
		}
		select {
		case <-news:
		case <-deadline:
			t.Fatalf("%d copies arrived, want %d", len(copies), n)
		}
	}
}

// request_mirror_policies: every policy gets a copy with the RPC's messages and
// metadata, its authority marked as a shadow's.
func TestMirrorsGetCopies(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		var m mirrorServer
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{mirrored(2)}, handle: m.handle})
		ctx := metadata.AppendToOutgoingContext(testContext(t), "k", "v")
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
	w.do(testContext(t), kinds[0], "/s/m", []string{"x"})
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
	s, err := w.s.Stream(testContext(t), kinds[2].desc, w.cc, "/s/m", plainStreamer, nil)
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
				r := w.do(testContext(t), k, "/s/m", requests)
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
	ctx := testContext(t)
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

// A copy ends with the original's deadline, and not with its context.
func TestACopyEndsWithTheDeadline(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		ended := make(chan error, 1)
		m := mirrorServer{copy: func(s grpc.ServerStream) error {
			if _, ok := s.Context().Deadline(); !ok {
				t.Error("the copy has no deadline")
			}
			<-s.Context().Done()
			ended <- s.Context().Err()
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
		select {
		case <-ended:
			if time.Now().Before(deadline.Add(-50 * time.Millisecond)) {
				t.Error("the copy ended when the original's context did")
			}
		case <-time.After(patience):
			t.Error("the copy did not end")
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
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatal("a copy goes on after the channel")
		}
	}
}

func TestAMirrorToAnUnknownClusterIsDropped(t *testing.T) {
	t.Parallel()
	route := toC()
	route.Mirrors = []xdsresource.Mirror{{Header: "to"}}
	w := newWorld(t, worldConfig{routes: []*xdsresource.Route{route}, handle: echoAll})
	for _, to := range []string{"", "unheard-of", "c"} {
		ctx := testContext(t)
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
