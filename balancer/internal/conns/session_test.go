package conns_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// gRFC A75: "When the child policy unrefs a subchannel it owns, if the entry's
// last_used_time is newer than the idle_timeout, the policy assumes ownership".
func TestWhichConnectionsAreKeptForSessions(t *testing.T) {
	t.Parallel()
	used := func(then func(*conns.Registry, *lbtest.User)) func(*conns.Registry, *lbtest.User) {
		return func(r *conns.Registry, u *lbtest.User) { u.Session().Use(); then(r, u) }
	}
	for _, tc := range []struct {
		name    string
		prepare func(*conns.Registry, *lbtest.User)
		want    bool
	}{
		{"never used", func(*conns.Registry, *lbtest.User) {}, false},
		{"used, connected", used(func(*conns.Registry, *lbtest.User) {}), true},
		{"used too long ago", used(func(*conns.Registry, *lbtest.User) { time.Sleep(time.Hour) }), false},
		{"used just within the timeout", used(func(*conns.Registry, *lbtest.User) { time.Sleep(time.Hour - 1) }), true},
		{"used, connecting", used(func(_ *conns.Registry, u *lbtest.User) { u.Report(connecting) }), true},
		{"used, idle", used(func(_ *conns.Registry, u *lbtest.User) { u.Report(idle) }), false},
		{"used, failed", used(func(_ *conns.Registry, u *lbtest.User) { u.Report(failed) }), false},
		{"used, another one is connected", used(func(r *conns.Registry, _ *lbtest.User) { lbtest.NewUser(r, ready, "a") }), false},
		{"used, another one is connecting", used(func(r *conns.Registry, _ *lbtest.User) { lbtest.NewUser(r, connecting, "a") }), true},
		{"used, the endpoint was removed", used(func(r *conns.Registry, _ *lbtest.User) { r.Update(config(at("b"))) }), false},
		{"used, its status does not allow sessions", used(func(r *conns.Registry, _ *lbtest.User) {
			r.Update(conns.Config{Localities: []xdsresource.Locality{at("a")}, Sessions: xdsresource.Sessions{IdleTimeout: time.Hour}})
		}), false},
		{"used, new connections have another proxy", used(func(r *conns.Registry, _ *lbtest.User) {
			l := at("a")
			l.Endpoints[0].Proxy = "p"
			r.Update(config(l))
		}), false},
		{"used, the Registry is closed", used(func(r *conns.Registry, _ *lbtest.User) { r.Close() }), false},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := lbtest.NewRegistry()
				r.Update(config(at("a")))
				u := lbtest.NewUser(r, ready, "a")
				tc.prepare(r, u)
				u.Shutdown()
				xdstest.Equal(t, "kept", tc.want, u.Open())
				r.Close()
				xdstest.Equal(t, "open in the end", false, u.Open())
			})
		})
	}
}

func TestSessionsGetTheBestConnection(t *testing.T) {
	t.Parallel()
	r := lbtest.NewRegistry()
	r.Update(config(at("a")))
	early := lbtest.NewUser(r, failed, "a") // before there is any session
	s := r.Session("a")
	expect := func(when string, want *lbtest.User, state connectivity.State) {
		t.Helper()
		if sc := s.Conn(); want == nil && sc != nil || want != nil && (sc != want.Conn || sc.State() != state) {
			t.Errorf("%s: connection %p, want %p in %v", when, sc, want, state)
		}
	}
	expect("one has failed", early, failed)
	second := lbtest.NewUser(r, connecting, "a")
	expect("one is connecting", second, connecting)
	early.Report(ready)
	expect("the first is connected", early, ready)
	early.Report(idle)
	expect("the first is idle", second, connecting)
	second.Report(connectivity.Shutdown)
	expect("the second is shut down", early, idle)
	early.Shutdown()
	expect("there is none", nil, 0)
}

// A connection that was kept ends when a policy has one that is READY, or when its
// endpoint is removed.
func TestKeptConnectionEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*conns.Registry){
		"a policy has a connection": func(r *conns.Registry) { lbtest.NewUser(r, ready, "a") },
		"the endpoint is removed":   func(r *conns.Registry) { r.Update(config()) },
		"it has another proxy": func(r *conns.Registry) {
			l := at("a")
			l.Endpoints[0].Proxy = "p"
			r.Update(config(l))
		},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			r := lbtest.NewRegistry()
			r.Update(config(at("a")))
			u := lbtest.NewUser(r, ready, "a")
			r.Session("a").Use()
			if u.Shutdown(); !u.Open() {
				t.Fatal("it was not kept")
			}
			end(r)
			xdstest.Equal(t, "open", false, u.Open())
		})
	}
}

// Diagnostics describe the best connection to an endpoint, at any of its addresses.
func TestBestConnectionIsDescribed(t *testing.T) {
	t.Parallel()
	e := both("a", "b")
	for _, tc := range []struct {
		a, b connectivity.State
		want string
	}{{ready, failed, "a"}, {failed, ready, "b"}, {idle, connecting, "b"}, {idle, failed, "a"}} {
		r := lbtest.NewRegistry()
		r.Update(config(xdsresource.Locality{Endpoints: []xdsresource.Endpoint{e}}))
		lbtest.NewUser(r, tc.a, "a")
		lbtest.NewUser(r, tc.b, "b")
		got := inspect.Endpoint{Addresses: []string{"a", "b"}}
		if r.Describe(&got); got.Connected != tc.want {
			t.Errorf("connections in %v and %v: got %s in %s, want %s", tc.a, tc.b, got.Connected, got.State, tc.want)
		}
	}
}

// A connection fails since its first failure, however often it is tried again.
func TestSinceWhenAConnectionFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := lbtest.NewRegistry()
		r.Update(config(at("a")))
		u := lbtest.NewUser(r, ready, "a")
		for i, tc := range []struct {
			state connectivity.State
			ago   time.Duration // since when, after a second in the state
		}{{connecting, 1}, {failed, 1}, {idle, 2}, {connecting, 3}, {failed, 4}, {connecting, 5}, {ready, 1}, {idle, 1}, {connecting, 1}} {
			u.Report(tc.state)
			time.Sleep(time.Second)
			got := inspect.Endpoint{Addresses: []string{"a"}}
			if r.Describe(&got); time.Since(got.Since) != tc.ago*time.Second || got.State != inspect.State(tc.state.String()) {
				t.Errorf("step %d: %s since %v, want %s since %v", i, got.State, time.Since(got.Since), tc.state, tc.ago*time.Second)
			}
		}
	})
}
