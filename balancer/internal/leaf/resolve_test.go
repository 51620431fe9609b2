//lint:file-ignore SA1019 The tests call what gRPC's policies call.

package leaf_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/balancer/internal/tree"
)

// gRFC A37, "Priority Policy Reresolution Handling": a connection that ends or
// fails has the names of its cluster looked up again, as does a policy that asks.
func TestNamesAreLookedUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := lbtest.NewNetwork()
		cc, loop := lbtest.NewClientConn(network), tree.NewLoop(func() {})
		var asked atomic.Int32
		env := lbtest.NewEnv(loop, cc)
		env.ResolveNow = func() { asked.Add(1) }
		var p *leaf.Policy
		loop.Do(func() { p = leaf.New(env, "spy", leaf.ForLocality, func() {}) })
		defer func() { loop.Do(p.Close); synctest.Wait() }()
		spied := <-built
		expect := func(when string, want int32) {
			t.Helper()
			synctest.Wait()
			if got := asked.Swap(0); got != want {
				t.Errorf("%s: asked %d times, want %d", when, got, want)
			}
		}

		spied.cc.ResolveNow(resolver.ResolveNowOptions{})
		expect("the policy asks", 1)
		sc, err := spied.cc.NewSubConn([]resolver.Address{{Addr: "a:1"}}, balancer.NewSubConnOptions{})
		if err != nil {
			t.Fatal(err)
		}
		sc.Connect()
		expect("a connection comes about", 0)
		network.Set("a:1", lbtest.Refused)
		expect("a connection ends", 1)
		sc.Connect()
		expect("a connection fails", 1)
		sc.Shutdown()
		network.Set("a:1", lbtest.Up)
		expect("the policy has given the connection up", 0)
	})
}
