package conns_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/traffic"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// config is a configuration with an endpoint at each address.
func config(addrs ...string) conns.Config {
	var l xdsresource.Locality
	for _, a := range addrs {
		l.Endpoints = append(l.Endpoints, xdsresource.Endpoint{Address: a, Hostname: "h"})
	}
	return conns.Config{Localities: []xdsresource.Locality{l}, Sessions: xdsresource.DefaultSessions}
}

// An update of one endpoint among many allocates for that one only.
func TestUpdateCostsTheChange(t *testing.T) {
	r := lbtest.NewBed(t).Env.Endpoints
	var addrs []string
	for i := range 10_000 {
		addrs = append(addrs, fmt.Sprintf("10.0.%d.%d:80", i/256, i%256))
	}
	other := slices.Clone(addrs)
	other[77] = "10.9.9.9:80"
	configs := [2]conns.Config{config(addrs...), config(other...)}
	loads := load.NewStore(nil).Use(load.Key{Cluster: "c"}, nil)
	turn := 0
	update := func() {
		c := configs[turn%2]
		c.Loads = loads
		r.Update(c)
		turn++
	}
	update()
	if n := testing.AllocsPerRun(10, update); n > 10 {
		t.Errorf("an update makes %v allocations, want 10 at most", n)
	}
}

// A policy that asks for the health of a connection after that has been lost, as it has not heard of that yet, is not told that it is READY:
// gRPC's SubConns are as lenient.
func TestHealthOfAConnectionThatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bed := lbtest.NewBed(t)
		c, err := bed.Env.Endpoints.Open(new(conns.User), []resolver.Address{{Addr: "a"}}, balancer.NewSubConnOptions{}, func(*conns.Conn, balancer.SubConnState) {})
		xdstest.NoError(t, err)
		told := 0
		ask := func() int {
			c.RegisterHealthListener(func(balancer.SubConnState) { told++ })
			synctest.Wait()
			return told
		}
		c.Connect()
		synctest.Wait()
		xdstest.Equal(t, "reports while it is READY", 1, ask())
		bed.CC.Set("a", lbtest.Refused)
		synctest.Wait()
		xdstest.Equal(t, "reports after it was lost", 1, ask())
		c.Shutdown()
		synctest.Wait()
	})
}

// RPCs to an address that a policy has made up are reported to the server that load reports go to now.
func TestLoadOfAnAddressWithoutAnEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lbtest.NewBed(t).Env.Endpoints
		c, err := r.Open(new(conns.User), []resolver.Address{{Addr: "a"}}, balancer.NewSubConnOptions{}, func(*conns.Conn, balancer.SubConnState) {})
		xdstest.NoError(t, err)
		counter := traffic.Use(traffic.Key{})
		for range 2 {
			server := load.NewStore(nil)
			r.Update(conns.Config{Loads: server.Use(load.Key{Cluster: "c"}, nil)})
			c.Begin()
			c.Ender(counter)(balancer.DoneInfo{BytesSent: true})
			xdstest.Equal(t, "reports", 1, len(server.Take(nil)))
		}
		c.Shutdown()
		synctest.Wait()
	})
}

// With concurrent use, each connection is closed by its policy or by the Registry, RPCs
// are counted, and no record is left.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	const goroutines, n = 8, 2000
	addrs := []string{"a", "b", "c"}
	var ended atomic.Int64
	health := make(map[string]*conns.Health)
	for _, address := range []string{"a", "b", "c"} {
		health[address] = conns.NewHealth(func(balancer.DoneInfo) { ended.Add(1) }, address)
	}
	bed := lbtest.NewBed(t)
	r := bed.Env.Endpoints
	update := func(many int) {
		c := config(addrs[:many]...)
		c.HealthOf = func(e *xdsresource.Endpoint) *conns.Health { return health[e.Address] }
		r.Update(c)
	}
	update(3)
	counter := traffic.Use(traffic.Key{})
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
				r.Eject(health["a"], i%2 == 0)
			}
		}
	})
	for i := range goroutines {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		workers.Go(func() {
			for range n {
				addr := addrs[random.IntN(len(addrs))]
				listener := func(c *conns.Conn, s balancer.SubConnState) {
					if s.ConnectivityState == connectivity.Ready {
						c.RegisterHealthListener(func(balancer.SubConnState) {})
					}
				}
				c, err := r.Open(new(conns.User), []resolver.Address{{Addr: addr}}, balancer.NewSubConnOptions{}, listener)
				xdstest.NoError(t, err)
				if random.IntN(2) == 0 {
					c.Connect()
				}
				r.ForSession([]string{addr})
				if c.Begin() {
					c.Ender(counter)(balancer.DoneInfo{BytesReceived: true})
				}
				c.Ejected()
				c.Shutdown()
			}
		})
	}
	workers.Wait()
	close(done)
	updater.Wait()
	bed.Loop.Do(func() { r.Update(conns.Config{}) })
	xdstest.Equal(t, "open connections", 0, len(bed.CC.Open()))
	for _, h := range health {
		r.Eject(h, false)
	}
	update(1)
	if ended.Load() == 0 {
		t.Error("outlier detection was told of no RPC")
	}
	xdstest.Equal(t, "records left (that of the endpoint)", 1, r.Len())
}
