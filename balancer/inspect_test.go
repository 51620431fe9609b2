package balancer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

func findable(l *atomic.Pointer[inspect.Balancer]) func(*balancer.State) {
	return func(s *balancer.State) { s.Live = l }
}

func expectCluster(t *testing.T, l *atomic.Pointer[inspect.Balancer], name string, phase inspect.Phase, state inspect.State, why string) {
	t.Helper()
	synctest.Wait()
	d, ok := (*l.Load())(context.Background(), name)
	if !ok || d.Name != name || d.Phase != phase || d.State != state || livestate.Why(&d) != why {
		t.Errorf("cluster %s (known %v) is %s and %s: %q; want %s and %s: %q", name, ok, d.Phase, d.State, livestate.Why(&d), phase, state, why)
	}
}

// A question does not wait for a balancer that is busy for longer than the caller likes.
func TestInspectEndsWithItsContext(t *testing.T) {
	test(t, func(t *testing.T, tr *tree) {
		live := new(atomic.Pointer[inspect.Balancer])
		tr.update(states{"a": serving("a:1")}, findable(live))
		hold := make(chan struct{})
		tr.CC.OnUpdate = func() { <-hold }
		go tr.update(states{"a": serving("b:1")})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, ok := (*live.Load())(ctx, "a"); ok {
			t.Error("a balancer that is busy answered")
		}
		close(hold)
		expectCluster(t, live, "a", inspect.PhaseDormant, inspect.Idle, "no RPC has needed the cluster yet")
	})
}

// Questions while everything changes: run with -race.
func TestInspectDuringChurn(t *testing.T) {
	t.Parallel()
	tr := newTree(t)
	live := new(atomic.Pointer[inspect.Balancer])
	tr.update(states{"stays": serving("s:1")}, findable(live))
	ctx, cancel := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				(*live.Load())(ctx, fmt.Sprint("c", i%5))
				if d, ok := (*live.Load())(context.Background(), "stays"); !ok || d.Name != "stays" {
					t.Errorf("the cluster that stays is %+v, known %v", d, ok)
					return
				}
			}
		})
	}
	reach := [...]lbtest.Reach{lbtest.Up, lbtest.Refused, lbtest.Silent}
	for i := range 300 {
		name, addr := fmt.Sprint("c", i%5), fmt.Sprint("c:", i%3)
		tr.CC.Set(addr, reach[i%len(reach)])
		c := serving(addr, "d:1")
		switch i % 7 {
		case 0:
			c = nil
		case 1:
			c = &balancer.ClusterState{Err: errors.New("gone")}
		case 2:
			c = over(underlying{"m", c})
		case 3:
			c.Cluster.LBPolicy = xdsresource.PolicyRandom
		}
		tr.update(states{name: c})
		tr.pick(name)
		tr.pick("stays")
	}
	cancel()
	asking.Wait()
}
