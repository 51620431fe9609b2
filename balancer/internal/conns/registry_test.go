package conns_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/traffic"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

const (
	idle       = connectivity.Idle
	connecting = connectivity.Connecting
	ready      = connectivity.Ready
	failed     = connectivity.TransientFailure
)

// at is a locality with an endpoint at each address.
func at(addrs ...string) xdsresource.Locality {
	var l xdsresource.Locality
	for _, a := range addrs {
		l.Endpoints = append(l.Endpoints, xdsresource.Endpoint{Address: a})
	}
	return l
}

// both is an endpoint with two addresses.
func both(first, second string) xdsresource.Endpoint {
	return xdsresource.Endpoint{Address: first, Additional: []string{second}}
}

func config(localities ...xdsresource.Locality) conns.Config {
	return conns.Config{Localities: localities, Sessions: xdsresource.DefaultSessions}
}

// A Record exists while the configuration or a connection needs it.
func TestRecordsAreRemoved(t *testing.T) {
	t.Parallel()
	r := lbtest.NewRegistry()
	early := lbtest.NewUser(r, ready, "a")
	r.Update(config(at("a", "b")))
	later := lbtest.NewUser(r, ready, "x")
	early.Shutdown()
	xdstest.Equal(t, "with a connection elsewhere: records", 3, r.Len())
	later.Report(connectivity.Shutdown)
	xdstest.Equal(t, "without connections: records", 2, r.Len())
	open := lbtest.NewUser(r, ready, "b")
	r.Update(config())
	xdstest.Equal(t, "with one connection and no endpoint: records", 1, r.Len())
	open.Shutdown()
	xdstest.Equal(t, "in the end: records", 0, r.Len())
}

func TestHostnameFollowsTheEndpoint(t *testing.T) {
	t.Parallel()
	r := lbtest.NewRegistry()
	early := lbtest.NewUser(r, ready, "a2")
	for _, want := range []string{"first", "second", ""} {
		e := both("a", "a2")
		e.Hostname = want
		r.Update(config(xdsresource.Locality{Endpoints: []xdsresource.Endpoint{e}}))
		for _, u := range []*lbtest.User{early, lbtest.NewUser(r, ready, "a")} {
			xdstest.Equal(t, "the hostname", want, u.Hostname())
		}
	}
}

// A connection to one of several addresses counts for load reports, but neither outlier
// detection nor sessions use it.
func TestConnectionToOneOfSeveralAddresses(t *testing.T) {
	t.Parallel()
	r, h := lbtest.NewRegistry(), conns.NewHealth("a")
	l := at("a")
	l.Endpoints[0].Hostname = "host"
	store := load.NewStore(nil)
	c := config(l)
	c.HealthOf, c.Loads = healthBy{"a": h}.of, loadsIn(store)
	r.Update(c)
	u := lbtest.NewUser(r, ready, "a", "b")
	u.Count(balancer.DoneInfo{Err: errors.New("failed")})
	if _, n := h.TakeCalls(); n != 0 {
		t.Error("its RPCs are counted for outlier detection")
	}
	r.Eject(h, true)
	if u.Ejected() {
		t.Error("it is ejected")
	}
	if r.Session("a").Conn() != nil || u.Session() != nil {
		t.Error("sessions may use it")
	}
	xdstest.Equal(t, "its hostname", "host", u.Hostname())
	u.Start()(balancer.DoneInfo{BytesSent: true})
	if reports := store.Take(nil); len(reports) != 1 {
		t.Error("its RPCs are not reported")
	}
	if u.Shutdown(); u.Open() {
		t.Error("it is kept")
	}
}

// An update of one endpoint among many allocates for that one only.
func TestUpdateCostsTheChange(t *testing.T) {
	r := lbtest.NewRegistry()
	l := at()
	for i := range 10_000 {
		l.Endpoints = append(l.Endpoints, xdsresource.Endpoint{Address: fmt.Sprintf("10.0.%d.%d:80", i/256, i%256), Hostname: "h"})
	}
	other := l
	other.Endpoints = slices.Clone(l.Endpoints)
	other.Endpoints[77].Address = "10.9.9.9:80"
	loads := loadsIn(load.NewStore(nil))
	turn := 0
	update := func() {
		c := config([]xdsresource.Locality{l, other}[turn%2])
		c.Loads = loads
		r.Update(c)
		turn++
	}
	update()
	if n := testing.AllocsPerRun(10, update); n > 10 {
		t.Errorf("an update makes %v allocations, want 10 at most", n)
	}
}

// What picks read takes no lock and allocates nothing.
func TestReadingAllocatesNothing(t *testing.T) {
	r := lbtest.NewRegistry()
	c := config(at("a"))
	c.HealthOf = healthBy{"a": conns.NewHealth("a")}.of
	c.Loads = loadsIn(load.NewStore(nil))
	r.Update(c)
	u, counter := lbtest.NewUser(r, ready, "a"), traffic.Use(traffic.Key{})
	defer counter.Release()
	if n := testing.AllocsPerRun(100, func() {
		u.Begin()
		u.Ender(counter)(balancer.DoneInfo{BytesReceived: true})
		u.Ejected()
		u.Hostname()
		u.Session().Addresses()
		r.Session("a").Conn().State()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// With concurrent use, each connection is closed by its policy or by the Registry, RPCs
// are counted, and no record is left.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	const goroutines, n = 8, 2000
	addrs := []string{"a", "b", "c"}
	health := healthBy{"a": conns.NewHealth("a"), "b": conns.NewHealth("b"), "c": conns.NewHealth("c")}
	r := lbtest.NewRegistry()
	update := func(many int) {
		c := config(at(addrs[:many]...))
		c.HealthOf = health.of
		r.Update(c)
	}
	update(3)
	var mu sync.Mutex
	var all []*lbtest.User
	var workers, updater sync.WaitGroup
	done := make(chan struct{})
	updater.Go(func() { // Update is for one goroutine
		random := rand.New(rand.NewPCG(2, 0))
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				update(1 + random.IntN(3))
				r.Sweep()
				r.Eject(health["a"], i%2 == 0)
			}
		}
	})
	for i := range goroutines {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		workers.Go(func() {
			for range n {
				addr := addrs[random.IntN(len(addrs))]
				u := lbtest.NewUser(r, connectivity.State(random.IntN(4)), addr)
				if s := r.Session(addr); s != nil {
					s.Use()
					s.Conn()
				}
				u.Count(balancer.DoneInfo{BytesReceived: true})
				u.Ejected()
				u.Shutdown()
				mu.Lock()
				all = append(all, u)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	close(done)
	updater.Wait()
	r.Close()
	if slices.ContainsFunc(all, (*lbtest.User).Open) {
		t.Error("a connection is open in the end")
	}
	for _, h := range health {
		r.Eject(h, false)
	}
	r.Update(config(at("a")))
	if s, f := health["a"].TakeCalls(); s == 0 || f != 0 {
		t.Errorf("%d RPCs to a succeeded and %d failed, want some and 0", s, f)
	}
	xdstest.Equal(t, "records left (that of the endpoint)", 1, r.Len())
}
