package balancer_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// over is an aggregate cluster.
func over(underlying ...underlying) *balancer.ClusterState {
	list := new(balancer.Underlying)
	states := list.States.Edit()
	for _, u := range underlying {
		list.Names = append(list.Names, u.name)
		states.Set(u.name, u.state)
	}
	list.States = states.Map()
	return &balancer.ClusterState{
		Cluster:    &xdsresource.Cluster{Name: "A", Kind: xdsresource.ClusterAggregate},
		Underlying: list,
	}
}

// underlying is a cluster under an aggregate one.
type underlying struct {
	name  string
	state *balancer.ClusterState
}

func under(name string, addrs ...string) underlying { return underlying{name, serving(addrs...)} }

func TestAggregateClusterInTheTree(t *testing.T) {
	test(t, func(t *testing.T, tr *tree) {
		tr.update(states{"A": over(under("B", "b:1"), under("C", "c:1")), "B": serving("b:1")})
		tr.ExpectOpen("before the first RPC")
		tr.reach("A", "b:1")
		tr.ExpectOpen("after it", "b:1")
		tr.Network.Set("b:1", lbtest.Refused)
		tr.reach("A", "c:1")
		tr.update(states{"A": nil})
		time.Sleep(balancer.Linger)
		tr.ExpectOpen("the aggregate cluster was removed")
	})
}

// A cluster becomes an aggregate one, and the other way round, without RPCs that wait.
func TestClusterChangesItsKind(t *testing.T) {
	test(t, func(t *testing.T, tr *tree) {
		tr.update(states{"A": serving("a:1")})
		tr.reach("A", "a:1")
		tr.Network.Set("b:1", lbtest.Silent)
		tr.update(states{"A": over(under("B", "b:1"))})
		tr.reach("A", "a:1")
		tr.Network.Set("b:1", lbtest.Up)
		tr.reach("A", "b:1")
		tr.Network.Set("c:1", lbtest.Silent)
		tr.update(states{"A": serving("c:1")})
		tr.reach("A", "b:1")
		tr.Network.Set("c:1", lbtest.Up)
		tr.reach("A", "c:1")
		time.Sleep(balancer.Linger)
		tr.ExpectOpen("at the end", "c:1")
	})
}

// What served a cluster of another kind does not go on if the cluster has no endpoint now.
func TestClusterChangesItsKindAndHasNoEndpoint(t *testing.T) {
	t.Parallel()
	empty := serving("a:1")
	empty.Endpoints = &xdsresource.Endpoints{Name: "none"}
	for _, tc := range []struct {
		to           string
		before, then *balancer.ClusterState
	}{
		{"an aggregate cluster", serving("a:1"), over(underlying{"B", empty}, underlying{"C", &balancer.ClusterState{Err: errors.New("withdrawn")}})},
		{"a cluster with endpoints", over(under("B", "a:1")), empty},
	} {
		t.Run(tc.to, subtest(func(t *testing.T, tr *tree) {
			tr.update(states{"A": tc.before})
			tr.reach("A", "a:1")
			tr.update(states{"A": tc.then})
			synctest.Wait()
			if addr, err := tr.pick("A"); err == nil {
				t.Errorf("a pick goes to %q, which is no endpoint of the cluster any more", addr)
			}
			time.Sleep(balancer.Linger)
			tr.ExpectOpen("the cluster has no endpoint")
		}))
	}
}

// An error ends everything that has served the cluster, of either kind.
func TestErrorClosesClusterOfAnyKind(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		given         string
		before, after *balancer.ClusterState
	}{
		{"a cluster with endpoints", serving("a:1"), &balancer.ClusterState{}},
		{"an aggregate cluster", over(under("B", "a:1")), &balancer.ClusterState{}},
		{"one that was to become an aggregate cluster", serving("a:1"), over()},
		{"one that was one", over(under("B", "a:1")), &balancer.ClusterState{Cluster: serving("x").Cluster}},
	} {
		t.Run(tc.given, subtest(func(t *testing.T, tr *tree) {
			tr.update(states{"A": tc.before})
			tr.reach("A", "a:1")
			tc.after.Err = errors.New("the control plane withdrew it")
			tr.update(states{"A": tc.after})
			synctest.Wait()
			if addr, err := tr.pick("A"); err == nil || err.Error() != tc.after.Err.Error() {
				t.Errorf("a pick goes to %q (%v), want the error", addr, err)
			}
			time.Sleep(balancer.Linger)
			tr.ExpectOpen("after the error")
			tr.update(states{"A": tc.before})
			tr.reach("A", "a:1")
		}))
	}
}
