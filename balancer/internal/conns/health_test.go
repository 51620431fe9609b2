package conns_test

import (
	"maps"
	"slices"
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// healthBy finds the Health of endpoints by their addresses.
type healthBy map[string]*conns.Health

func (h healthBy) of(e *xdsresource.Endpoint) *conns.Health { return h[e.Address] }

// watch is a configuration with an endpoint at each address that has a Health.
func watch(r *conns.Registry, health healthBy) {
	r.Update(conns.Config{Localities: []xdsresource.Locality{at(slices.Sorted(maps.Keys(health))...)}, HealthOf: health.of})
}

func expectEjected(t *testing.T, when string, u *lbtest.User, want bool, changes int64) {
	t.Helper()
	if got, n := u.Ejected(), u.Health.Load(); got != want || n != changes {
		t.Errorf("%s: ejected %v, notified %d times; want %v, %d", when, got, n, want, changes)
	}
}

// gRFC A61, "Outlier Detection": an address may move to another endpoint.
func TestAddressMovesToAnotherEndpoint(t *testing.T) {
	t.Parallel()
	r, bad, good := lbtest.NewRegistry(), conns.NewHealth("a", "b"), conns.NewHealth("a", "b")
	watch(r, healthBy{"a": bad, "b": good})
	a, b := lbtest.NewUser(r, ready, "a"), lbtest.NewUser(r, ready, "b")
	r.Eject(bad, true)
	expectEjected(t, "ejected", a, true, 1)
	watch(r, healthBy{"a": good, "b": bad})
	expectEjected(t, "now of the good endpoint", a, false, 2)
	expectEjected(t, "now of the bad endpoint", b, true, 1)
	watch(r, healthBy{"a": good, "b": bad})
	expectEjected(t, "the same update again", a, false, 2)
	watch(r, nil)
	expectEjected(t, "no endpoint at all", b, false, 2)
	r.Eject(bad, false)
	expectEjected(t, "an endpoint that was removed is no longer ejected", b, false, 2)
}

func TestConnectionOutlivesItsEndpoint(t *testing.T) {
	t.Parallel()
	r, h, again := lbtest.NewRegistry(), conns.NewHealth("a"), conns.NewHealth("a")
	watch(r, healthBy{"a": h})
	u := lbtest.NewUser(r, ready, "a")
	watch(r, nil)
	u.Count(balancer.DoneInfo{BytesReceived: true})
	if s, f := h.TakeCalls(); s+f != 0 {
		t.Errorf("an endpoint that was removed counted %d and %d", s, f)
	}
	watch(r, healthBy{"a": again})
	u.Count(balancer.DoneInfo{BytesReceived: true})
	if s, _ := again.TakeCalls(); s != 1 {
		t.Errorf("the endpoint that has replaced it counted %d, want 1", s)
	}
	watch(r, nil)
	u.Shutdown()
	fresh := lbtest.NewUser(r, ready, "a")
	watch(r, healthBy{"a": again})
	r.Eject(again, true)
	expectEjected(t, "a later connection to the address", fresh, true, 1)
}
