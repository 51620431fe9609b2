//lint:file-ignore SA1019 The tests call what gRPC's policies call.

package leaf_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// gRFC A37, "Priority Policy Reresolution Handling": a connection that ends or
// fails has the names of its cluster looked up again, as does a policy that asks.
func TestNamesAreLookedUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSpied(t)
		var asked atomic.Int32
		f.Env.ResolveNow = func() { asked.Add(1) }
		expect := func(when string, want int32) {
			t.Helper()
			synctest.Wait()
			xdstest.Equal(t, when+": how often it asked", want, asked.Swap(0))
		}

		f.spy.cc.ResolveNow(resolver.ResolveNowOptions{})
		expect("the policy asks", 1)
		sc, err := f.spy.cc.NewSubConn([]resolver.Address{{Addr: "a:1"}}, balancer.NewSubConnOptions{})
		xdstest.NoError(t, err)
		sc.Connect()
		expect("a connection is established", 0)
		f.Network.Set("a:1", lbtest.Refused)
		expect("a connection ends", 1)
		sc.Connect()
		expect("a connection fails", 1)
		sc.Shutdown()
		f.Network.Set("a:1", lbtest.Up)
		expect("the policy has given the connection up", 0)
	})
}
