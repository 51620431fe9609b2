package random_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/random"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRandom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := lbtest.NewNetwork()
		cc := lbtest.NewClientConn(network)
		loop := tree.NewLoop(func() {})
		var p *random.Policy
		publish := func() { cc.UpdateState(p.State()) }
		loop.Do(func() {
			p = random.New(lbtest.NewEnv(loop, cc), publish)
		})
		defer func() { loop.Do(p.Close); synctest.Wait() }()
		update := func(addrs ...string) {
			var endpoints []xdsresource.Endpoint
			for i, a := range addrs {
				endpoints = append(endpoints, xdsresource.Endpoint{Address: a, Weight: uint32(i + 1)})
			}
			loop.Do(func() { p.Update(endpoints, ""); publish() })
			synctest.Wait()
		}
		counts := func(n int, addrs ...string) []int {
			t.Helper()
			got := make(map[string]int)
			for range n {
				addr, err := cc.Pick(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				got[addr]++
			}
			list := make([]int, len(addrs))
			for i, a := range addrs {
				list[i] = got[a]
				n -= got[a]
			}
			if n != 0 {
				t.Errorf("%d picks go elsewhere: %v", n, got)
			}
			return list
		}
		expectFailure := func(when, want string, state connectivity.State) {
			t.Helper()
			synctest.Wait()
			if got := cc.State().ConnectivityState; got != state {
				t.Errorf("%s: state is %v, want %v", when, got, state)
			}
			if _, err := cc.Pick(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: a pick gave %v, want %q", when, err, want)
			}
		}

		update()
		expectFailure("no endpoint", "no usable endpoint", connectivity.TransientFailure)
		update("a:1", "b:1", "c:1", "d:1")
		lbtest.CheckShares(t, "picks", counts(40000, "a:1", "b:1", "c:1", "d:1"), 1, 1, 1, 1)

		network.Set("a:1", lbtest.Refused)
		network.Set("b:1", lbtest.Silent)
		synctest.Wait()
		counts(1000, "c:1", "d:1")

		network.Set("c:1", lbtest.Silent)
		network.Set("d:1", lbtest.Refused)
		expectFailure("some connect", "no SubConn", connectivity.Connecting)
		network.Set("b:1", lbtest.Refused)
		network.Set("c:1", lbtest.Refused)
		expectFailure("all failed", "connection refused", connectivity.TransientFailure)

		network.Set("a:1", lbtest.Up)
		time.Sleep(2 * lbtest.Backoff)
		synctest.Wait()
		counts(100, "a:1")
	})
}
