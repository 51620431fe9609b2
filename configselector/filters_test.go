package configselector_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// marking is a filter that appends its name to the header "via".
func marking(name string) httpfilter.Instance {
	return filterOf(name, func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
		return next.NewStream(metadata.AppendToOutgoingContext(ctx, "via", name), rpc)
	})
}

func TestFiltersRunInTheOrderOfTheChain(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		w := newWorld(t, worldConfig{listener: chainOf(marking("a"), marking("b"), marking("c"))})
		r := w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"})
		if r.err != nil || !slices.Equal(r.replies, []string{"x"}) {
			t.Errorf("replies %q, error %v", r.replies, r.err)
		}
		xdstest.Equal(t, "filters ran as", []string{"a", "b", "c"}, w.seen()[0].md["via"])
		if len(r.finished) != 1 || r.finished[0] != nil {
			t.Errorf("OnFinish got %v, want one nil", r.finished)
		}
	})
}

// A filter that sends an RPC twice without a clone has two streams all the same.
func TestAFilterSendsTheSameRPCTwice(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		twice := filterOf("twice", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
			first, err := next.NewStream(ctx, rpc)
			xdstest.NoError(t, err)
			second, err := next.NewStream(ctx, rpc)
			xdstest.NoError(t, err)
			if first == second {
				t.Error("both are the same stream")
			}
			xdstest.NoError(t, httpfilter.Exchange(second, bytesOf("other"), bytesOf("")))
			return first, nil
		})
		w := newWorld(t, worldConfig{listener: chainOf(twice)})
		r := w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"})
		if r.err != nil || !slices.Equal(r.replies, []string{"x"}) {
			t.Errorf("replies %q, error %v", r.replies, r.err)
		}
		xdstest.Equal(t, "RPCs that the server saw", 2, len(w.seen()))
	})
}

func TestAFilterEndsAnRPC(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		err  error
		want codes.Code
	}{
		{"with a status", status.Error(codes.ResourceExhausted, "why"), codes.ResourceExhausted},
		{"with a wrapped status", fmt.Errorf("filter: %w", status.Error(codes.Aborted, "why")), codes.Aborted},
		{"with a context's error", context.DeadlineExceeded, codes.DeadlineExceeded},
		{"with any other error", errors.New("why"), codes.Unknown},
		{"with neither a stream nor an error", nil, codes.Internal},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				w := newWorld(t, worldConfig{
					listener: chainOf(filterOf("f", func(context.Context, *httpfilter.RPC, httpfilter.Next) (grpc.ClientStream, error) {
						return nil, test.err
					})),
				})
				r := w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"})
				if status.Code(r.err) != test.want {
					t.Errorf("%v, want %v", r.err, test.want)
				}
				if len(r.finished) != 1 || status.Code(r.finished[0]) != test.want {
					t.Errorf("OnFinish got %v, want it once", r.finished)
				}
				xdstest.Equal(t, "RPCs that the server saw", 0, len(w.seen()))
			})
		})
	}
}

// deafStream fails to send.
type deafStream struct{ grpc.ClientStream }

func (deafStream) SendMsg(any) error { return context.Canceled }

// An error of a filter's SendMsg ends the RPC, with a status.
func TestAFilterThatCannotSend(t *testing.T) {
	t.Parallel()
	deaf := filterOf("deaf", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
		s, err := next.NewStream(ctx, rpc)
		return deafStream{s}, err
	})
	eachKind(t, func(t *testing.T, k kind) {
		w := newWorld(t, worldConfig{listener: chainOf(deaf)})
		r := w.makeRPC(t.Context(), k, "/s/m", []string{"x"})
		if status.Code(r.err) != codes.Canceled || len(r.finished) != 1 || status.Code(r.finished[0]) != codes.Canceled {
			t.Errorf("got %v, and OnFinish got %v, want CANCELED once", r.err, r.finished)
		}
	})
}

// The context of a stream with filters ends with the stream.
func TestTheContextOfAStreamEnds(t *testing.T) {
	t.Parallel()
	for _, k := range kinds[1:] {
		w := newWorld(t, worldConfig{listener: chainOf(marking("a"))})
		var given context.Context
		w.pick = func(ctx context.Context) error { given = ctx; return nil }
		xdstest.NoError(t, w.makeRPC(t.Context(), k, "/s/m", []string{"x"}).err)
		if given.Err() == nil {
			t.Errorf("%s: the context goes on", k.name)
		}
	}
}

// The route's timeout bounds RPCs that pass filters, and only if there is one.
func TestTheDeadlineOfAnRPCWithFilters(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]bool{0: false, time.Hour: true} {
		eachKind(t, func(t *testing.T, k kind) {
			bounded := make(chan bool, 1)
			route := toC()
			route.MaxStreamDuration = &timeout
			w := newWorld(t, worldConfig{routes: []*xdsresource.Route{route}, listener: chainOf(marking("a")), handle: func(_ int, s grpc.ServerStream) error {
				_, ok := s.Context().Deadline()
				bounded <- ok
				return echo(s)
			}})
			r := w.makeRPC(t.Context(), k, "/s/m", []string{"x"})
			xdstest.NoError(t, r.err)
			xdstest.Equal(t, fmt.Sprintf("with %v there is a deadline", timeout), want, <-bounded)
		})
	}
}

func TestAFilterEndsAnRPCAsABackendWould(t *testing.T) {
	t.Parallel()
	trailer := metadata.Pairs("k", "v")
	for _, test := range []struct {
		name string
		err  error
		want map[string]codes.Code // by kind; "" for the rest
	}{
		{"with an error", status.Error(codes.NotFound, "why"), map[string]codes.Code{"": codes.NotFound}},
		// A33, "200/OK Error Injection": unary and client-streaming RPCs
		// want a message.
		{"with OK", nil, map[string]codes.Code{"unary": codes.Internal, "client streaming": codes.Internal, "": codes.OK}},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				w := newWorld(t, worldConfig{
					listener: chainOf(filterOf("f", func(ctx context.Context, _ *httpfilter.RPC, _ httpfilter.Next) (grpc.ClientStream, error) {
						return httpfilter.EndedStream(ctx, test.err, trailer), nil
					})),
				})
				r := w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"})
				want, ok := test.want[k.name]
				if !ok {
					want = test.want[""]
				}
				if status.Code(r.err) != want {
					t.Errorf("%v, want %v", r.err, want)
				}
				if r.header != nil || r.trailer.Get("k") == nil {
					t.Errorf("header %v, trailer %v", r.header, r.trailer)
				}
				if len(r.finished) != 1 {
					t.Errorf("OnFinish got %v, want it once", r.finished)
				}
			})
		})
	}
}

func TestAFilterChangesTheRPC(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		w := newWorld(t, worldConfig{
			listener: chainOf(filterOf("f", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
				if rpc.Method != "/s/m" || rpc.Authority != "service" && rpc.Authority != "mine" || rpc.Cluster != "c" || (rpc.StreamDesc == nil) != (k.desc == nil) {
					t.Errorf("the filter sees %+v", rpc)
				}
				rpc.Method, rpc.Authority = "/t/n", "other"
				return next.NewStream(ctx, rpc)
			})),
		})
		for want, opts := range map[string][]grpc.CallOption{"other": nil, "mine": {grpc.CallAuthority("mine")}} {
			xdstest.NoError(t, w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"}, opts...).err)
			rpcs := w.seen()
			if got := rpcs[len(rpcs)-1]; got.method != "/t/n" || got.authority != want {
				t.Errorf("the server saw %s at %s, want authority %s", got.method, got.authority, want)
			}
		}
	})
}

// A filter that sends further RPCs, here to hedge in the simplest way: the
// second one answers.
func TestAFilterSendsFurtherRPCs(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		first := toC()
		first.Match.Path, first.Match.PathKind = "/never", matching.PathExact
		second := toC()
		first.Action.(*xdsresource.Forward).Clusters[0].Name = "d"
		w := newWorld(t, worldConfig{
			routes: []*xdsresource.Route{first, second},
			listener: chainOf(filterOf("twice", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
				extra := rpc.Clone()
				extra.Cluster = "d"
				extra.Method = "/s/extra"
				stream, err := next.NewStream(ctx, extra)
				if err != nil {
					return nil, err
				}
				if err := stream.SendMsg(bytesOf("extra")); err != nil {
					return nil, err
				}
				_ = stream.CloseSend()
				if err := stream.RecvMsg(bytesOf("")); err != nil {
					return nil, err
				}
				return next.NewStream(ctx, rpc)
			}), marking("later")),
		})
		w.pick = func(ctx context.Context) error {
			if d := decision.FromContext(ctx); d.Channel != w.cc || d.Version != 1 || d.Method != "/s/m" {
				t.Errorf("a Decision is %+v", d)
			}
			return nil
		}
		r := w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"})
		if r.err != nil || !slices.Equal(r.replies, []string{"x"}) {
			t.Errorf("replies %q, error %v", r.replies, r.err)
		}
		for i, method := range []string{"/s/extra", "/s/m"} {
			if got := w.seen()[i]; got.method != method || !slices.Equal(got.md["via"], []string{"later"}) {
				t.Errorf("RPC %d is %+v", i, got)
			}
		}
	})
}

func TestAFilterChoosesTheCluster(t *testing.T) {
	t.Parallel()
	other := toC()
	other.Match.Path, other.Match.PathKind = "/other", matching.PathExact
	other.Action.(*xdsresource.Forward).Clusters[0].Name = "d"
	for cluster, want := range map[string]codes.Code{"d": codes.OK, "unheard-of": codes.Unavailable} {
		listener := chainOf(filterOf("f", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
			rpc.Cluster = cluster
			return next.NewStream(ctx, rpc)
		}))
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{other, toC()}, listener: listener})
		given, err := unary(t.Context(), w.s, "/s/m")
		if status.Code(err) != want {
			t.Errorf("%s: %v, want %v", cluster, err, want)
		}
		if want != codes.OK {
			continue
		}
		d := decision.FromContext(given)
		xdstest.Equal(t, "cluster of the Decision", "d", d.Cluster)
		// Another version keeps the cluster, though its route names "c".
		if got, err := w.s.Reselect(d); got != "d" || err != nil {
			t.Errorf("Reselect: %q, %v", got, err)
		}
		without := newWorld(t, worldConfig{})
		if _, err := without.s.Reselect(d); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), `"d"`) {
			t.Errorf("Reselect without the cluster: %v", err)
		}
	}
}

// tenant is the key of a value that one filter hands down to others.
type tenant struct{}

func TestValuesReachLaterFiltersAndThePicker(t *testing.T) {
	t.Parallel()
	seen := ""
	w := newWorld(t, worldConfig{
		listener: chainOf(
			filterOf("sets", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
				return next.NewStream(context.WithValue(ctx, tenant{}, "acme"), rpc)
			}),
			filterOf("reads", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
				seen, _ = ctx.Value(tenant{}).(string)
				return next.NewStream(ctx, rpc)
			})),
	})
	given := mustUnary(t, t.Context(), w.s, "/s/m")
	picked, ok := given.Value(tenant{}).(string)
	if seen != "acme" || picked != "acme" || !ok {
		t.Errorf("the filter sees %q, the picker %q", seen, picked)
	}
}

func TestAFilterEditsTheResponse(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		w := newWorld(t, worldConfig{
			listener: chainOf(filterOf("f", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
				s, err := next.NewStream(ctx, rpc)
				if err != nil {
					return nil, err
				}
				return httpfilter.EditResponse(s,
					func(md metadata.MD) { md.Set("h", "edited") },
					func(md metadata.MD, only bool) { md.Set("t", fmt.Sprint("edited ", only)) }), nil
			})),
			handle: func(n int, s grpc.ServerStream) error {
				s.SetTrailer(metadata.Pairs("t", "original"))
				if n == 1 {
					return status.Error(codes.Aborted, "no headers")
				}
				_ = s.SetHeader(metadata.Pairs("h", "original", "i", "original"))
				return echo(s)
			},
		})
		r := w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"})
		if r.err != nil || r.header.Get("h")[0] != "edited" || r.header.Get("i")[0] != "original" || r.trailer.Get("t")[0] != "edited false" {
			t.Errorf("header %v, trailer %v, error %v", r.header, r.trailer, r.err)
		}
		r = w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"})
		if status.Code(r.err) != codes.Aborted || r.header != nil || r.trailer.Get("t")[0] != "edited true" {
			t.Errorf("without headers: header %v, trailer %v, error %v", r.header, r.trailer, r.err)
		}
	})
}

func TestAUnaryInterceptorSeesMessages(t *testing.T) {
	t.Parallel()
	calls := 0
	i := httpfilter.UnaryInterceptor(func(ctx context.Context, rpc *httpfilter.RPC, req, reply any, invoke func(context.Context) error) error {
		calls++
		if err := invoke(ctx); err != nil {
			return err
		}
		return invoke(metadata.AppendToOutgoingContext(ctx, "again", "yes"))
	})
	w := newWorld(t, worldConfig{listener: chainOf(filterOf("f", i.NewStream)), handle: func(n int, s grpc.ServerStream) error {
		_ = s.SetHeader(metadata.Pairs("n", fmt.Sprint(n)))
		return echo(s)
	}})
	r := w.makeRPC(testutils.Context(t), kinds[0], "/s/m", []string{"x"})
	if r.err != nil || r.replies[0] != "x" || len(w.seen()) != 2 || r.header.Get("n")[0] != "1" {
		t.Errorf("result %+v, the server saw %v", r, w.seen())
	}
	if r := w.makeRPC(testutils.Context(t), kinds[3], "/s/m", []string{"x"}); r.err != nil || calls != 1 {
		t.Errorf("streaming: %v, %d calls of the function", r.err, calls)
	}
}

// The application gets the peer (grpc.Peer) whatever wraps the stream, and whether or not the RPC
// succeeds.
func TestPeer(t *testing.T) {
	t.Parallel()
	edit := func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
		s, err := next.NewStream(ctx, rpc)
		return httpfilter.EditResponse(s, func(metadata.MD) {}, nil), err
	}
	call := httpfilter.UnaryInterceptor(func(ctx context.Context, _ *httpfilter.RPC, _, _ any, invoke func(context.Context) error) error {
		return invoke(ctx)
	}).NewStream
	edited := toC()
	edited.Headers = &xdsresource.HeaderMutations{Response: xdsresource.HeaderEdits{{{Name: "k", Absent: []string{"v"}}}}}
	for _, test := range []struct {
		name    string
		filters []httpfilter.Instance
		route   *xdsresource.Route
		fail    int // attempts
	}{
		{name: "no filter"},
		{name: "a filter without a stream", filters: []httpfilter.Instance{filterOf("f", pass)}},
		{name: "EditResponse", filters: []httpfilter.Instance{filterOf("f", edit)}},
		{name: "UnaryInterceptor", filters: []httpfilter.Instance{filterOf("f", call)}},
		{name: "a failing RPC through a UnaryInterceptor", filters: []httpfilter.Instance{filterOf("f", call)}, fail: 1},
		{name: "header edits", route: edited},
		{name: "a retry", route: retried(xdsresource.RetryPolicy{}), fail: 1},
		{name: "a retry behind a filter", route: retried(xdsresource.RetryPolicy{}), filters: []httpfilter.Instance{filterOf("f", edit)}, fail: 2},
		{name: "all retries fail", route: retried(xdsresource.RetryPolicy{}), fail: 9},
		{name: "hedging", route: hedged(3), fail: 1},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				c := worldConfig{listener: chainOf(test.filters...), handle: failing(test.fail, codes.Unavailable)}
				if test.route != nil {
					c.routes = []*xdsresource.Route{test.route}
				}
				var p peer.Peer
				r := newWorld(t, c).makeRPC(testutils.Context(t), k, "/s/m", []string{"x"}, grpc.Peer(&p))
				if p.Addr == nil {
					t.Errorf("the application gets no peer; the RPC ended with %v", r.err)
				}
			})
		})
	}
}

// The peer of the RPC that the application serves is not that of an RPC which reaches nobody.
func TestNoPeer(t *testing.T) {
	t.Parallel()
	for _, test := range sentTwice {
		eachKind(t, func(t *testing.T, k kind) {
			w := newWorld(t, worldConfig{routes: []*xdsresource.Route{test.route}, listener: chainOf(filterOf("f", pass))})
			w.pick = func(context.Context) error { return status.Error(codes.NotFound, "no endpoint") }
			ctx := peer.NewContext(testutils.Context(t), &peer.Peer{Addr: &net.TCPAddr{Port: 1}})
			var p peer.Peer
			if r := w.makeRPC(ctx, k, "/s/m", []string{"x"}, grpc.Peer(&p)); status.Code(r.err) != codes.NotFound || p.Addr != nil {
				t.Errorf("%s: %v, peer %v", test.name, r.err, p.Addr)
			}
		})
	}
}

// configurable is a filter that reports configuration and override.
type configurable struct {
	mu    sync.Mutex
	built []string
}

func (c *configurable) entry(name string, config string, disabled bool) httpfilter.Instance {
	return httpfilter.Instance{Name: name, Config: config, Disabled: disabled, Filter: &testFilter{
		typeURL: "type.googleapis.com/test.Configurable",
		build: func(name string) httpfilter.ClientInstance {
			return instanceFunc(func(config, override httpfilter.Config) (httpfilter.Interceptor, error) {
				text := fmt.Sprintf("%s:%v:%v", name, config, override)
				c.mu.Lock()
				c.built = append(c.built, text)
				c.mu.Unlock()
				if override == "broken" {
					return nil, errors.New("cannot be merged")
				}
				return httpfilter.InterceptorFunc(func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
					return next.NewStream(metadata.AppendToOutgoingContext(ctx, "config", text), rpc)
				}), nil
			})
		},
	}}
}

func override(value string) xdsresource.FilterOverride {
	return xdsresource.FilterOverride{Filter: &testFilter{typeURL: "type.googleapis.com/test.Configurable"}, Config: value}
}

// TestTheMostSpecificOverrideIsUsed: gRFC A39, "Filter Config Overrides".
func TestTheMostSpecificOverrideIsUsed(t *testing.T) {
	t.Parallel()
	type overrides = xdsresource.FilterOverrides
	disabled := xdsresource.FilterOverride{Disabled: true}
	otherType := xdsresource.FilterOverride{Filter: &testFilter{typeURL: "type.googleapis.com/test.Other"}, Config: "other"}
	for _, test := range []struct {
		name               string
		vh, route, cluster overrides
		want               []string
	}{
		{name: "none", want: []string{"a:A:<nil>", "b:B:<nil>"}},
		{name: "virtual host", vh: overrides{"a": override("vh")}, want: []string{"a:A:vh", "b:B:<nil>"}},
		{name: "route before virtual host", vh: overrides{"a": override("vh")}, route: overrides{"a": override("route")}, want: []string{"a:A:route", "b:B:<nil>"}},
		{name: "cluster weight before route", route: overrides{"a": override("route")}, cluster: overrides{"a": override("cluster")}, want: []string{"a:A:cluster", "b:B:<nil>"}},
		{name: "each instance its own", vh: overrides{"b": override("vh")}, route: overrides{"a": override("route")}, want: []string{"a:A:route", "b:B:vh"}},
		{name: "a name that no instance has", route: overrides{"c": override("route")}, want: []string{"a:A:<nil>", "b:B:<nil>"}},
		{name: "another type of filter", route: overrides{"a": otherType}, want: []string{"a:A:<nil>", "b:B:<nil>"}},
		{name: "disabled", route: overrides{"a": disabled}, want: []string{"b:B:<nil>"}},
		{name: "disabled and enabled again", vh: overrides{"a": disabled}, route: overrides{"a": override("route")}, want: []string{"a:A:route", "b:B:<nil>"}},
		{name: "disabled at the top and enabled", route: overrides{"off": override("route")}, want: []string{"a:A:<nil>", "b:B:<nil>", "off:OFF:route"}},
		{name: "enabled with the top's configuration", route: overrides{"off": {}}, want: []string{"a:A:<nil>", "b:B:<nil>", "off:OFF:<nil>"}},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			var c configurable
			route := toC()
			route.Overrides = test.route
			route.Action.(*xdsresource.Forward).Clusters[0].Overrides = test.cluster
			w := newWorld(t, worldConfig{
				vh:       xdsresource.VirtualHost{Overrides: test.vh},
				routes:   []*xdsresource.Route{route},
				listener: chainOf(c.entry("a", "A", false), c.entry("b", "B", false), c.entry("off", "OFF", true)),
			})
			given := mustUnary(t, t.Context(), w.s, "/s/m")
			md, _ := metadata.FromOutgoingContext(given)
			xdstest.Equal(t, "filters", test.want, md["config"])
		})
	}
}

func TestAMergedConfigurationIsMadeOncePerDistinctCombination(t *testing.T) {
	t.Parallel()
	var c configurable
	var routes []*xdsresource.Route
	for i := range 100 {
		route := toC()
		if i%2 == 0 {
			route.Overrides = xdsresource.FilterOverrides{"a": override("x")}
		}
		routes = append(routes, route)
	}
	w := newWorld(t, worldConfig{routes: routes, listener: chainOf(c.entry("a", "A", false))})
	for range 10 {
		if _, err := unary(t.Context(), w.s, "/s/m"); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(c.built)
	xdstest.Equal(t, "built", []string{"a:A:<nil>", "a:A:x"}, c.built)
}

func TestRPCsOfAChainThatCannotBeBuiltFail(t *testing.T) {
	t.Parallel()
	var c configurable
	route := toC()
	route.Overrides = xdsresource.FilterOverrides{"a": override("broken")}
	w := newWorld(t, worldConfig{routes: []*xdsresource.Route{route}, listener: chainOf(c.entry("a", "A", false))})
	eachKind(t, func(t *testing.T, k kind) {
		r := w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"})
		if status.Code(r.err) != codes.Unavailable || !strings.Contains(r.err.Error(), `"a" cannot be configured: cannot be merged`) {
			t.Errorf("got %v", r.err)
		}
	})
}
