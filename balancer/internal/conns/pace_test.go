package conns_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// The connections of a large cluster are not all made at the same time, and those of another cluster have their turn.
func TestConnectionsTakeTurnsToBeMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most, many = bounds.Connecting, 10 * bounds.Connecting
		cc, loop := lbtest.NewClientConn(), tree.NewLoop(func() {})
		pool := conns.NewPool(cc, loop.Post, time.Minute)
		var mu sync.Mutex
		states := make(map[string]connectivity.State)
		in := func(s connectivity.State) (n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, state := range states {
				if state == s {
					n++
				}
			}
			return n
		}
		stateOf := func(addr string) connectivity.State {
			mu.Lock()
			defer mu.Unlock()
			return states[addr]
		}
		open := func(cluster, addr string) *conns.Conn {
			cc.Set(addr, lbtest.Silent)
			listener := func(_ *conns.Conn, s balancer.SubConnState) {
				mu.Lock()
				defer mu.Unlock()
				states[addr] = s.ConnectivityState
			}
			registry := conns.NewRegistry(&conns.Setup{Pool: pool, Cluster: cluster}, func() {})
			c, err := registry.Open(new(conns.User), []resolver.Address{{Addr: addr}}, balancer.NewSubConnOptions{}, listener)
			xdstest.NoError(t, err)
			c.Connect()
			c.Connect()
			return c
		}
		var all []*conns.Conn
		for i := range many {
			all = append(all, open("large", fmt.Sprint(i)))
		}
		small := open("small", "small")
		synctest.Wait()
		xdstest.Equal(t, "connections that are made at first", most, in(connectivity.Connecting))

		// When one is made, or fails, the next begins, of each cluster in turn.
		cc.Set("0", lbtest.Up)
		cc.Set("1", lbtest.Refused)
		synctest.Wait()
		xdstest.Equal(t, "connections that are made then", most, in(connectivity.Connecting))
		xdstest.Equal(t, "that of the small cluster", connectivity.Connecting, stateOf("small"))

		// Servers that do not answer hold others up for a moment only.
		all[most+1].Shutdown()
		time.Sleep(bounds.ConnectingSlice)
		synctest.Wait()
		xdstest.Equal(t, "connections that are made when the others did not answer", 2*most, in(connectivity.Connecting))
		xdstest.Equal(t, "the one that is not wanted any more", connectivity.Shutdown, stateOf(fmt.Sprint(most+1)))
		time.Sleep(many / most * bounds.ConnectingSlice)
		synctest.Wait()
		xdstest.Equal(t, "connections that are made in the end", many+1-3, in(connectivity.Connecting)) // one is READY, one failed, one is shut down

		for _, c := range append(all, small) {
			if c != all[most+1] {
				c.Shutdown()
			}
		}
		pool.Close()
		synctest.Wait()
		xdstest.Equal(t, "connections after Close", 0, len(cc.Open()))
	})
}
