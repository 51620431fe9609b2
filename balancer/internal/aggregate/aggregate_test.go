package aggregate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer/internal/aggregate"
	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/priority"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture runs an aggregate cluster over a fake network.
type fixture struct {
	*lbtest.Fixture[*aggregate.Policy]
}

func newFixture(t testing.TB) *fixture {
	return &fixture{lbtest.NewFixture(t, func(env *tree.Env, changed func()) *aggregate.Policy {
		return aggregate.New(env, "A", changed)
	})}
}

func test(t *testing.T, run func(*testing.T, *fixture)) { subtest(run)(t) }

func subtest(run func(*testing.T, *fixture)) func(*testing.T) { return lbtest.Subtest(newFixture, run) }

func (f *fixture) update(members ...member) { f.updateTo(over(members...)) }

func (f *fixture) updateTo(c *cluster.Config) { f.Update(func() { f.Policy.Update(c) }) }

// member is a cluster under the aggregate one.
type member struct {
	name string
	cluster.Config
}

// over is an aggregate cluster.
func over(members ...member) *cluster.Config {
	u := new(cluster.Underlying)
	states := u.States.Edit()
	for _, m := range members {
		u.Names = append(u.Names, m.name)
		states.Set(m.name, &m.Config)
	}
	u.States = states.Map()
	return &cluster.Config{Underlying: u}
}

// in is a cluster of the given name with endpoints.
func in(name string, addrs ...string) member {
	return member{name, cluster.Config{
		Cluster:   lbtest.Cluster(name),
		Endpoints: &xdsresource.Endpoints{Name: name, Localities: []xdsresource.Locality{lbtest.Locality("", addrs...)}},
	}}
}

func (f *fixture) subConn() *lbtest.SubConn { return f.SubConn(context.Background()) }

// gRFCs A37 and A56: RPCs go to the first cluster that works. The others are connected only
// when they are needed.
func TestFailoverAndReturn(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.update(in("B", "b:1"), in("C", "c:1"), in("D", "d:1"))
		f.Expect("at first", "b:1")
		f.ExpectOpen("at first", "b:1")
		f.Network.Set("b:1", lbtest.Refused)
		f.Expect("B fails", "c:1")
		f.ExpectOpen("B fails", "b:1", "c:1")
		f.Network.Set("c:1", lbtest.Refused)
		f.Expect("C fails", "d:1")
		f.Network.Set("b:1", lbtest.Up)
		time.Sleep(2 * lbtest.Backoff)
		f.Expect("B is back", "b:1")
		f.ExpectOpen("B is back", "b:1", "c:1", "d:1")
		time.Sleep(priority.RetentionTime)
		f.ExpectOpen("the others have not been needed for a while", "b:1")
	})
}

// gRFC A74, "Changes in xds Resolver": an underlying cluster that does not exist is skipped.
// One that is not known yet has time to connect.
func TestClustersWithoutEndpointsAreSkipped(t *testing.T) {
	t.Parallel()
	missing := member{"B", cluster.Config{Err: errors.New("no B")}}
	for _, tc := range []struct {
		given string
		first member
		after time.Duration
	}{
		{"does not exist", missing, 0},
		{"has no endpoint", in("B"), 0},
		{"is not known", member{name: "B"}, priority.FailoverTimeout},
	} {
		t.Run(tc.given, subtest(func(t *testing.T, f *fixture) {
			f.update(tc.first, in("C", "c:1"))
			if tc.after > 0 {
				f.Expect("at first", lbtest.Waits)
				time.Sleep(tc.after)
			}
			f.Expect("then", "c:1")
			f.update(in("B", "b:1"), in("C", "c:1"))
			f.Expect("when it has an endpoint", "b:1")
		}))
	}
}

func TestOutcomeOfRPCsByResources(t *testing.T) {
	t.Parallel()
	failed := member{"B", cluster.Config{Err: errors.New("no B")}}
	for _, tc := range []struct {
		given  string
		config *cluster.Config
		state  connectivity.State
		want   string
	}{
		{"nothing yet", new(cluster.Config), connectivity.Connecting, lbtest.Waits},
		{"an error", &cluster.Config{Err: status.Error(2, "a cycle")}, connectivity.TransientFailure, "a cycle"},
		{"only a cluster that does not exist", over(failed), connectivity.TransientFailure,
			`no cluster of aggregate cluster "A" works; of the last one: no B`},
		{"no cluster that can be reached", over(failed, in("C", "refused:1")),
			connectivity.TransientFailure, `aggregate cluster "A" works; of the last one: dynxds: no endpoint of cluster "C" (ClusterLoadAssignment "C") can be reached`},
	} {
		t.Run(tc.given, subtest(func(t *testing.T, f *fixture) {
			f.Network.Set("refused:1", lbtest.Refused)
			f.update(in("B", "b:1"), in("X", "x:1"))
			f.updateTo(tc.config)
			f.Expect("then", tc.want)
			f.ExpectState("then", tc.state)
			_, err := f.CC.Pick(context.Background())
			if _, isStatus := status.FromError(err); isStatus && tc.config.Err != nil {
				t.Errorf("%v is a status error, which ends even RPCs that wait for ready", err)
			}
			f.update(in("B", "b:1"))
			f.Expect("when it is repaired", "b:1")
		}))
	}
}

// gRFC A56: clusters that remain keep their connections, in any order, and an update of one
// cluster does not affect another.
func TestUpdatesKeepConnections(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		b, c := in("B", "b:1"), in("C", "c:1")
		f.update(b, c)
		first := f.subConn()
		f.Network.Set("b:1", lbtest.Refused)
		synctest.Wait()
		second := f.subConn()
		f.Network.Set("b:1", lbtest.Up)
		time.Sleep(2 * lbtest.Backoff)
		synctest.Wait()
		if f.subConn() != first {
			t.Fatal("B was connected again")
		}
		f.update(c, b)
		if f.subConn() != second {
			t.Error("C was connected again when the order changed")
		}
		f.update(b, in("C", "c:2"))
		if f.subConn() != first {
			t.Error("B was connected again when C changed")
		}
		f.update(in("N", "n:1"), b)
		f.Expect("a new cluster in front", "n:1")
		f.update(b)
		if f.subConn() != first {
			t.Error("B was connected again when another cluster was added and removed")
		}
	})
}

// notes are what is wrong with resources that are in use nevertheless.
type notes string

func (n notes) String() string { return string(n) }

// An update with the same list of clusters costs what has changed. The rest is as after any update.
func TestUpdateWithTheSameList(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		before := over(in("B", "b:1"), in("C", "c:1"))
		f.updateTo(before)
		f.Expect("at first", "b:1")
		states := before.Underlying.States.Edit()
		moved := in("B", "refused:1", "refused:2")
		states.Set("B", &moved.Config)
		f.Network.Set("refused:1", lbtest.Refused)
		f.Network.Set("refused:2", lbtest.Refused)
		f.Network.Set("c:1", lbtest.Refused)
		after := &cluster.Config{Underlying: &cluster.Underlying{Names: before.Underlying.Names, States: states.Map()}, Notes: notes("a stale route")}
		f.updateTo(after)
		f.Expect("B has other endpoints", "connection refused (a stale route)")
		f.ExpectOpen("B has other endpoints", "c:1", "refused:1", "refused:2")
		if after.Underlying.Same(before.Underlying) || !after.Underlying.Same(&cluster.Underlying{Names: before.Underlying.Names, States: states.Map()}) {
			t.Error("Same does not compare the states")
		}
	})
}

// gRFC A75: policy, limit and drops are those of the underlying cluster.
func TestEachClusterHasItsOwnConfiguration(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		b, c := in("own-B", "b:1"), in("own-C", "c:1", "c:2")
		b.Cluster.MaxRequests = 1
		c.Cluster.LBPolicy = xdsresource.PolicyRandom
		c.Endpoints.Drops = []xdsresource.Drop{{Category: "all", PerMillion: xdsresource.Million}}
		f.update(b, c)
		held, err := f.CC.State().Picker.Pick(balancer.PickInfo{Ctx: context.Background()})
		xdstest.NoError(t, err)
		f.Expect("the limit of B", "max_requests")
		f.Network.Set("b:1", lbtest.Refused)
		f.Expect("the drops of C", `RPC to cluster "own-C" dropped`)
		held.Done(balancer.DoneInfo{})
		f.ExpectOpen("the policy of C", "b:1", "c:1", "c:2")
	})
}

// A cluster that drops all RPCs drops them whatever its endpoints do: the next one gets none.
func TestClusterThatDropsAllIsUsed(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		b, none := in("own-B", "b:1"), in("own-B", "b:1")
		b.Endpoints.Drops = []xdsresource.Drop{{Category: "all", PerMillion: xdsresource.Million}}
		none.Endpoints = &xdsresource.Endpoints{Name: "none", Drops: b.Endpoints.Drops}
		f.Network.Set("b:1", lbtest.Refused)
		f.update(b, in("own-C", "c:1"))
		f.Expect("B cannot be reached", `RPC to cluster "own-B" dropped`)
		f.update(none, in("own-C", "c:1"))
		f.Expect("B has no endpoint", `RPC to cluster "own-B" dropped`)
		f.update(in("own-B", "b:1"), in("own-C", "c:1"))
		f.Expect("B drops nothing", "c:1")
	})
}

// gRFC A37, "Priority Policy Reresolution Handling": a cluster that keeps failing does not have
// the names of the one in use looked up again.
func TestReresolutionIsUpToTheCluster(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		asked := map[string]int{}
		byDNS := func(m member) member {
			m.ResolveNow = func() { asked[m.name]++ }
			return m
		}
		f.Network.Set("b:1", lbtest.Refused)
		f.update(byDNS(in("B", "b:1")), byDNS(in("C", "c:1")))
		f.Expect("B fails", "c:1")
		time.Sleep(10 * lbtest.Backoff)
		synctest.Wait()
		if asked["B"] < 5 || asked["C"] != 0 {
			t.Errorf("names were asked for again %v times, want some for B and none for C", asked)
		}
		f.Network.Set("c:1", lbtest.Refused)
		synctest.Wait()
		if asked["C"] == 0 {
			t.Error("the names of C were not asked for again when its connection ended")
		}
	})
}

func TestCloseEndsAllConnections(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.Network.Set("b:1", lbtest.Refused)
		f.update(in("B", "b:1"), in("C", "c:1"))
		f.Expect("before", "c:1")
		f.Close()
		f.ExpectOpen("closed")
	})
}

func TestExitIdle(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.Loop.Do(f.Policy.ExitIdle) // before there is anything
		b := in("B", "b:1")
		b.Cluster.LBPolicy, b.Cluster.AcrossLocalities = xdsresource.PolicyRingHash, true
		f.update(b)
		f.ExpectOpen("a ring is idle")
		f.Loop.Do(f.Policy.ExitIdle)
		f.ExpectOpen("after ExitIdle", "b:1")
	})
}
