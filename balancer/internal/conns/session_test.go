package conns_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

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
