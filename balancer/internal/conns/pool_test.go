//lint:file-ignore SA1019 How a SubConn gets credentials of its own.

package conns_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdstest"
)

type bundle struct{ credentials.Bundle }

// incomparable bundles cannot be compared.
type incomparable struct {
	credentials.Bundle
	_ []int
}

// A connection is used again for the same address and the same credentials only.
func TestConnectionIsUsedAgain(t *testing.T) {
	t.Parallel()
	a, b := &bundle{}, &bundle{}
	to := func(addrs ...string) (list []resolver.Address) {
		for _, addr := range addrs {
			list = append(list, resolver.Address{Addr: addr})
		}
		return list
	}
	for _, tc := range []struct {
		name         string
		first, again []resolver.Address
		with, then   balancer.NewSubConnOptions
		made         int
	}{
		{"the same", to("a:1"), to("a:1"), balancer.NewSubConnOptions{}, balancer.NewSubConnOptions{}, 1},
		{"the same credentials", to("a:1"), to("a:1"), balancer.NewSubConnOptions{CredsBundle: a}, balancer.NewSubConnOptions{CredsBundle: a}, 1},
		{"other credentials", to("a:1"), to("a:1"), balancer.NewSubConnOptions{CredsBundle: a}, balancer.NewSubConnOptions{CredsBundle: b}, 2},
		{"credentials where there were none", to("a:1"), to("a:1"), balancer.NewSubConnOptions{}, balancer.NewSubConnOptions{CredsBundle: b}, 2},
		{"credentials that cannot be compared", to("a:1"), to("a:1"), balancer.NewSubConnOptions{CredsBundle: incomparable{}}, balancer.NewSubConnOptions{CredsBundle: incomparable{}}, 2},
		{"health checks", to("a:1"), to("a:1"), balancer.NewSubConnOptions{}, balancer.NewSubConnOptions{HealthCheckEnabled: true}, 2},
		{"another server name", to("a:1"), []resolver.Address{{Addr: "a:1", ServerName: "a"}}, balancer.NewSubConnOptions{}, balancer.NewSubConnOptions{}, 2},
		{"several addresses", to("a:1", "b:1"), to("a:1", "b:1"), balancer.NewSubConnOptions{}, balancer.NewSubConnOptions{}, 2},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, loop := lbtest.NewClientConn(), tree.NewLoop(func() {})
				pool := conns.NewPool(cc, loop.Post, time.Minute)
				registry := conns.NewRegistry(&conns.Setup{Pool: pool}, func() {})
				for _, open := range []struct {
					addresses []resolver.Address
					opts      balancer.NewSubConnOptions
				}{{tc.first, tc.with}, {tc.again, tc.then}} {
					var last balancer.SubConnState
					c, err := registry.Open(new(conns.User), open.addresses, open.opts, func(_ *conns.Conn, s balancer.SubConnState) { last = s })
					xdstest.NoError(t, err)
					c.Connect()
					synctest.Wait()
					xdstest.Equal(t, "the state of the connection", connectivity.Ready, last.ConnectivityState)
					c.Shutdown()
					synctest.Wait()
				}
				xdstest.Equal(t, "connections that were made", tc.made, cc.Made("a:1"))
				xdstest.Equal(t, "lingering connections", tc.made, len(cc.Open()))
				pool.Close()
				synctest.Wait()
				if open := cc.Open(); len(open) > 0 {
					t.Errorf("%v are open after Close", open)
				}
			})
		})
	}
}

// gRFC A94, "Proposal": a connection is made again if its labels change. But however often they
// change, connections do not pile up.
func TestConnectionIsUsedAgainByItsLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, loop := lbtest.NewClientConn(), tree.NewLoop(func() {})
		pool := conns.NewPool(cc, loop.Post, time.Minute)
		for _, tc := range []struct {
			cluster string
			made    int
			labels  string // that the connection has
		}{
			{"a", 1, "a"}, {"a", 1, "a"},
			{"b", 2, "b"}, {"a", 2, "a"}, {"b", 2, "b"},
			// Two linger that have other labels.
			{"c", 2, "a"}, {"d", 2, "b"}, {"e", 2, "a"},
			{"b", 2, "b"}, {"a", 2, "a"},
		} {
			registry := conns.NewRegistry(&conns.Setup{Pool: pool, Cluster: tc.cluster, Recorded: true}, func() {})
			to := []resolver.Address{{Addr: "a:1"}}
			c, err := registry.Open(new(conns.User), to, balancer.NewSubConnOptions{}, func(*conns.Conn, balancer.SubConnState) {})
			xdstest.NoError(t, err)
			c.Connect()
			synctest.Wait()
			xdstest.Equal(t, "connections that were made for cluster "+tc.cluster, tc.made, cc.Made("a:1"))
			if got := grpcbridge.SubchannelLabelsOf(c.SubConn.(*lbtest.SubConn).Address); got.BackendService != tc.labels {
				t.Errorf("for cluster %s: the connection has the labels %v, want those of %s", tc.cluster, got, tc.labels)
			}
			c.Shutdown()
			synctest.Wait()
		}
		pool.Close()
		synctest.Wait()
	})
}

// The number of lingering connections is bounded: another connection has one of these shut down early, or when its RPCs have ended.
func TestLingeringConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, loop := lbtest.NewClientConn(), tree.NewLoop(func() {})
		pool := conns.NewPool(cc, loop.Post, time.Minute)
		registry := conns.NewRegistry(&conns.Setup{Pool: pool}, func() {})
		opened := 0
		open := func(n int) (all []*conns.Conn) {
			for range n {
				opened++
				to := []resolver.Address{{Addr: fmt.Sprintf("%d:1", opened)}}
				c, err := registry.Open(new(conns.User), to, balancer.NewSubConnOptions{}, func(*conns.Conn, balancer.SubConnState) {})
				xdstest.NoError(t, err)
				c.Connect()
				all = append(all, c)
			}
			synctest.Wait()
			return all
		}
		release := func(all []*conns.Conn) {
			for _, c := range all {
				c.Shutdown()
			}
			synctest.Wait()
		}
		const most = bounds.LingeringConnections
		var used []*conns.Conn
		for range 100 {
			before := used
			used = open(21)
			release(before)
		}
		lingering := cc.Open()
		xdstest.Equal(t, "connections after 100 changes in no time", most+len(used), len(lingering))
		if !slices.Contains(lingering, fmt.Sprintf("%d:1", opened-len(used))) {
			t.Errorf("the last connection does not linger: %v", lingering)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		xdstest.Equal(t, "connections after the whole time", len(used), len(cc.Open()))

		// As many linger as were in use together.
		many := open(5 * most)
		release(many)
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		xdstest.Equal(t, "connections of a large cluster that was removed", len(many)+len(used), len(cc.Open()))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		xdstest.Equal(t, "in the end", len(used), len(cc.Open()))

		busy := used[0]
		xdstest.Equal(t, "an RPC begins", true, busy.Begin())
		release(used)
		time.Sleep(time.Hour)
		synctest.Wait()
		xdstest.Equal(t, "connections with an RPC", []string{busy.Address()}, cc.Open())
		xdstest.Equal(t, "a late RPC begins", false, busy.Begin())
		pool.Close()
		busy.Abort()
		synctest.Wait()
		xdstest.Equal(t, "after Close and the last RPC", 0, len(cc.Open()))
	})
}

// Each report is a job of its own, after which the tree may publish a picker: a policy over 15,000 endpoints takes milliseconds for each,
// and RPCs must not wait until all have reported.
func TestReportsAreSingleJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		jobs, reports := make(chan func(), 10), 0
		pool := conns.NewPool(lbtest.NewClientConn(), func(job func()) { jobs <- job }, time.Minute)
		registry := conns.NewRegistry(&conns.Setup{Pool: pool}, func() {})
		for _, address := range []string{"a:1", "b:1"} {
			c, err := registry.Open(new(conns.User), []resolver.Address{{Addr: address}}, balancer.NewSubConnOptions{}, func(*conns.Conn, balancer.SubConnState) { reports++ })
			xdstest.NoError(t, err)
			c.Connect()
		}
		synctest.Wait()
		for done := 1; len(jobs) > 0; done++ {
			(<-jobs)()
			xdstest.Equal(t, "reports", done, reports)
		}
		xdstest.Equal(t, "reports of two connections", 4, reports)
		pool.Close()
	})
}
