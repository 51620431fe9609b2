package conns_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// watch is a configuration of an endpoint for each Health, at its addresses.
func watch(r *conns.Registry, byAddress ...any) {
	var l xdsresource.Locality
	var health []*conns.Health
	for i := 0; i < len(byAddress); i += 2 {
		l.Endpoints = append(l.Endpoints, xdsresource.Endpoint{Address: byAddress[i].(string)})
		health = append(health, byAddress[i+1].(*conns.Health))
	}
	r.Update(conns.Config{Localities: []xdsresource.Locality{l}, Health: health})
}

func expectEjected(t *testing.T, when string, u *lbtest.User, want bool, changes int64) {
	t.Helper()
	if got, n := u.Ejected(), u.Health.Load(); got != want || n != changes {
		t.Errorf("%s: ejected %v, notified %d times; want %v, %d", when, got, n, want, changes)
	}
}

func TestConnectionsAreNotifiedOfEjections(t *testing.T) {
	t.Parallel()
	r, h, other := lbtest.NewRegistry(), conns.NewHealth("a", "b"), conns.NewHealth("c")
	early := lbtest.NewUser(r, ready, "a")
	expectEjected(t, "before its endpoint is known", early, false, 0)
	watch(r, "a", h, "b", h, "c", other)
	second, bystander := lbtest.NewUser(r, ready, "b"), lbtest.NewUser(r, ready, "c")

	r.Eject(h, true)
	expectEjected(t, "ejected", early, true, 1)
	expectEjected(t, "ejected, at another address (gRFC A61)", second, true, 1)
	expectEjected(t, "another endpoint is ejected", bystander, false, 0)
	r.Eject(h, true)
	expectEjected(t, "ejected again", early, true, 1)
	late := lbtest.NewUser(r, ready, "a")
	expectEjected(t, "connected to an ejected endpoint", late, true, 0)

	late.Shutdown()
	r.Eject(h, false)
	expectEjected(t, "no longer ejected", early, false, 2)
	expectEjected(t, "no longer ejected, but closed", late, false, 0)
	if h.Ejected() {
		t.Error("the endpoint is still ejected")
	}
}

// gRFC A61, "Outlier Detection": an address may move to another endpoint.
func TestAddressMovesToAnotherEndpoint(t *testing.T) {
	t.Parallel()
	r, bad, good := lbtest.NewRegistry(), conns.NewHealth("a", "b"), conns.NewHealth("a", "b")
	watch(r, "a", bad, "b", good)
	a, b := lbtest.NewUser(r, ready, "a"), lbtest.NewUser(r, ready, "b")
	r.Eject(bad, true)
	expectEjected(t, "ejected", a, true, 1)
	watch(r, "a", good, "b", bad)
	expectEjected(t, "now of the good endpoint", a, false, 2)
	expectEjected(t, "now of the bad endpoint", b, true, 1)
	watch(r, "a", good, "b", bad)
	expectEjected(t, "the same update again", a, false, 2)
	watch(r)
	expectEjected(t, "no endpoint at all", b, false, 2)
	r.Eject(bad, false)
	expectEjected(t, "an endpoint that was removed is no longer ejected", b, false, 2)
}

func TestRPCsAreCountedByHowTheyEnd(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name              string
		info              balancer.DoneInfo
		succeeded, failed uint64
	}{
		{"answered", balancer.DoneInfo{BytesReceived: true, BytesSent: true}, 1, 0},
		{"failed", balancer.DoneInfo{Err: errors.New("UNAVAILABLE"), BytesSent: true}, 0, 1},
		{"failed after a part of the answer", balancer.DoneInfo{Err: errors.New("INTERNAL"), BytesReceived: true}, 0, 1},
		{"picked again, as the connection had ended", balancer.DoneInfo{}, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r, h := lbtest.NewRegistry(), conns.NewHealth("a")
			u := lbtest.NewUser(r, ready, "a")
			u.Count(tc.info) // not counted, as the endpoint is not known
			watch(r, "a", h)
			u.Count(tc.info)
			if s, f := h.TakeCalls(); s != tc.succeeded || f != tc.failed {
				t.Errorf("%d succeeded and %d failed, want %d and %d", s, f, tc.succeeded, tc.failed)
			}
			if s, f := h.TakeCalls(); s+f != 0 {
				t.Errorf("TakeCalls returned %d and %d again", s, f)
			}
		})
	}
}

func TestConnectionOutlivesItsEndpoint(t *testing.T) {
	t.Parallel()
	r, h, again := lbtest.NewRegistry(), conns.NewHealth("a"), conns.NewHealth("a")
	watch(r, "a", h)
	u := lbtest.NewUser(r, ready, "a")
	watch(r)
	u.Count(balancer.DoneInfo{BytesReceived: true})
	if s, f := h.TakeCalls(); s+f != 0 {
		t.Errorf("an endpoint that was removed counted %d and %d", s, f)
	}
	watch(r, "a", again)
	u.Count(balancer.DoneInfo{BytesReceived: true})
	if s, _ := again.TakeCalls(); s != 1 {
		t.Errorf("the endpoint that has replaced it counted %d, want 1", s)
	}
	watch(r)
	u.Shutdown()
	fresh := lbtest.NewUser(r, ready, "a")
	watch(r, "a", again)
	r.Eject(again, true)
	expectEjected(t, "a later connection to the address", fresh, true, 1)
}
