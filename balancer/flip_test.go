package balancer_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// with returns a cluster with another policy among its endpoints.
func with(policy string, c *balancer.ClusterState) *balancer.ClusterState {
	c.Cluster.LBPolicy = policy
	return c
}

// in moves the endpoints of a cluster to a zone.
func in(zone string, c *balancer.ClusterState) *balancer.ClusterState {
	c.Endpoints.Localities[0].ID.Zone = zone
	return c
}

// states are changes of clusters by name; nil removes one.
type states = map[string]*balancer.ClusterState

// flip is a change that a control plane may make all the time: which cluster RPCs go to, and
// what changes, at the i-th change.
type flip func(i int) (cluster string, changes states)

// inTurn changes one cluster to what even and odd return, in turn.
func inTurn(even, odd func() *balancer.ClusterState) flip {
	return func(i int) (string, states) {
		if i%2 == 0 {
			return "c", states{"c": even()}
		}
		return "c", states{"c": odd()}
	}
}

// between moves the RPCs between two clusters.
func between(addrs ...string) flip {
	return func(i int) (string, states) {
		if i%2 == 0 {
			return "a", states{"a": serving("a:1", "a:2"), "b": nil}
		}
		return "b", states{"a": nil, "b": serving(addrs...)}
	}
}

// endpoints changes the endpoints of a cluster with a policy.
func endpoints(policy string) flip {
	return inTurn(func() *balancer.ClusterState { return with(policy, serving("a:1", "a:2")) },
		func() *balancer.ClusterState { return with(policy, serving("b:1", "b:2")) })
}

// After an even change the cluster has the endpoints a:1 and a:2, after an odd one those of
// other, if there are any.
var flips = []struct {
	name  string
	other []string
	state flip
}{
	{"a route, between two clusters", []string{"b:1", "b:2"}, between("b:1", "b:2")},
	{"a route, between two clusters of the same endpoints", nil, between("a:1", "a:2")},
	{"the name of a cluster", nil, func(i int) (string, states) {
		name, before := fmt.Sprint("c", i), fmt.Sprint("c", i-1)
		return name, states{name: serving("a:1", "a:2"), before: nil}
	}},
	{"the endpoints of a cluster", []string{"b:1", "b:2"}, endpoints("round_robin")},
	{"the endpoints of a pick_first cluster", []string{"b:1"}, endpoints("pick_first")},
	{"the endpoints of a random cluster", []string{"b:1", "b:2"}, endpoints(xdsresource.PolicyRandom)},
	{"the policy of a cluster", nil, inTurn(func() *balancer.ClusterState { return with("round_robin", serving("a:1", "a:2")) },
		func() *balancer.ClusterState { return with(xdsresource.PolicyRandom, serving("a:1", "a:2")) })},
	{"the zone of the endpoints", nil, func(i int) (string, states) {
		return "c", states{"c": in(fmt.Sprint(i%2), serving("a:1", "a:2"))}
	}},
	{"the zone of the endpoints, another one each time", nil, func(i int) (string, states) {
		return "c", states{"c": in(fmt.Sprint(i), serving("a:1", "a:2"))}
	}},
}

// However often RPCs move, an endpoint has two connections at most: one that lingers is used
// again when its endpoint returns.
func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	for _, f := range flips {
		t.Run(f.name, subtest(func(t *testing.T, tr *tree) { testFlips(t, tr, f.state, f.other, 2) }))
	}
}

// With metrics, connections have labels (gRFC A94), for which another one may be needed.
func TestLabelledConnectionsAreReused(t *testing.T) {
	t.Parallel()
	for _, f := range flips {
		t.Run(f.name, lbtest.Subtest(newRecordedTree, func(t *testing.T, tr *tree) { testFlips(t, tr, f.state, f.other, 3) }))
	}
}

// testFlips expects at most most connections to each endpoint.
func testFlips(t *testing.T, tr *tree, state flip, other []string, most int) {
	for i := range 200 {
		cluster, changes := state(i)
		xdstest.NoError(t, tr.update(changes))
		tr.pick(cluster)
		synctest.Wait()
		addr, err := tr.pick(cluster)
		if want := (i%2 == 0 || other == nil); err != nil || (addr[0] == 'a') != want {
			t.Fatalf("after change %d a pick goes to %q (error %v)", i, addr, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, addr := range append([]string{"a:1"}, other...) {
		if made := tr.CC.Made(addr); made < 1 || made > most {
			t.Errorf("%d connections to %s were made; want no more than %d", made, addr, most)
		}
	}
}

// TestFlippingOverRealConnections counts connections that backends accept, goroutines and file
// descriptors, for which it cannot be parallel.
func TestFlippingOverRealConnections(t *testing.T) {
	const backends, changes = 10, 100
	var sets [2][]string
	var servers []*server
	for i := range 2 * backends {
		s := startServer(t, fmt.Sprint(i%2))
		servers = append(servers, s)
		sets[i%2] = append(sets[i%2], s.addr)
	}
	for _, tc := range []struct {
		name  string
		state func(i int) (string, states)
	}{
		{"the route", func(i int) (string, states) {
			name, before := fmt.Sprint(i%2), fmt.Sprint((i+1)%2)
			return name, states{name: serving(sets[i%2]...), before: nil}
		}},
		{"the endpoints", func(i int) (string, states) {
			return "c", states{"c": serving(sets[i%2]...)}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, s := range servers {
				s.conns.Store(0)
			}
			ch := dial(t)
			first, state := tc.state(0)
			ch.publish(first, state)
			ch.expect("0")
			stop := ch.keepCalling(4)
			var goroutines, files int
			for i := 1; i <= changes; i++ {
				name, state := tc.state(i)
				ch.publish(name, state)
				ch.expect(fmt.Sprint(i % 2))
				if i == 4 || i == changes {
					before, filesBefore := goroutines, files
					goroutines, files = runtime.NumGoroutine(), openFiles()
					// Both ends of each connection.
					if i == changes && (goroutines > 2*before || files > 2*filesBefore) {
						t.Errorf("%d goroutines and %d files after %d changes; after 4 there were %d and %d",
							goroutines, files, i, before, filesBefore)
					}
				}
			}
			stop()
			for i, s := range servers {
				if n := s.conns.Load(); n > 2 {
					t.Errorf("backend %d accepted %d connections, want 2 at most", i, n)
				}
			}
			ch.cc.Close()
		})
	}
}

// openFiles returns the number of open files, 0 on systems without /proc.
func openFiles() int {
	files, _ := os.ReadDir("/proc/self/fd")
	return len(files)
}
