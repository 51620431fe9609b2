package aggregate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture runs an aggregate cluster over a fake network, in a synctest bubble.
type fixture struct {
	t       *testing.T
	network *lbtest.Network
	cc      *lbtest.ClientConn
	loop    *tree.Loop
	policy  *aggregate.Policy
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, network: lbtest.NewNetwork(), loop: tree.NewLoop(func() {})}
	f.cc = lbtest.NewClientConn(f.network)
	env := lbtest.NewEnv(f.loop, f.cc)
	publish := func() { f.cc.UpdateState(f.policy.State()) }
	f.loop.Do(func() { f.policy = aggregate.New(env, "A", publish) })
	f.loop.Do(publish)
	return f
}

func (f *fixture) close() {
	f.loop.Do(f.policy.Close)
	synctest.Wait()
}

func (f *fixture) update(underlying ...aggregate.Underlying) {
	f.updateTo(aggregate.Config{Underlying: underlying})
}

func (f *fixture) updateTo(c aggregate.Config) {
	f.loop.Do(func() {
		f.policy.Update(c)
		f.cc.UpdateState(f.policy.State())
	})
	synctest.Wait()
}

// in is a cluster of the given name with endpoints.
func in(name string, addrs ...string) aggregate.Underlying {
	l := xdsresource.Locality{Weight: 1}
	for _, a := range addrs {
		l.Endpoints = append(l.Endpoints, xdsresource.Endpoint{Address: a, Weight: 1})
	}
	return aggregate.Underlying{Name: name, Config: cluster.Config{
		Cluster:   &xdsresource.Cluster{Name: name, LBPolicy: "round_robin", MaxRequests: xdsresource.DefaultMaxRequests},
		Endpoints: &xdsresource.Endpoints{Name: name, Localities: []xdsresource.Locality{l}},
	}}
}

// expect checks where the next picks go, or how they fail.
func (f *fixture) expect(when, want string) {
	f.t.Helper()
	synctest.Wait()
	addr, err := f.cc.Pick(context.Background())
	if err == nil && addr != want || err != nil && !strings.Contains(err.Error(), want) {
		f.t.Errorf("%s: a pick goes to %q (%v), want %q", when, addr, err, want)
	}
}

func (f *fixture) expectOpen(when string, want ...string) {
	f.t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(append([]string{}, want...), f.cc.Open()); diff != "" {
		f.t.Errorf("%s: open connections (-want +got):\n%s", when, diff)
	}
}

// subConn is the connection that the next pick goes to.
func (f *fixture) subConn() *lbtest.SubConn {
	f.t.Helper()
	result, err := f.cc.State().Picker.Pick(balancer.PickInfo{Ctx: context.Background()})
	if err != nil {
		f.t.Fatal(err)
	}
	result.Done(balancer.DoneInfo{})
	return lbtest.Picked(result)
}

const waits = "no SubConn is available"

// gRFC A37 and A56: RPCs go to the first cluster that works, and the others get
// connections only when their turn comes.
func TestFailoverAndReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.close()
		f.update(in("B", "b:1"), in("C", "c:1"), in("D", "d:1"))
		f.expect("at first", "b:1")
		f.expectOpen("at first", "b:1")
		f.network.Set("b:1", lbtest.Refused)
		f.expect("B fails", "c:1")
		f.expectOpen("B fails", "b:1", "c:1")
		f.network.Set("c:1", lbtest.Refused)
		f.expect("C fails", "d:1")
		f.network.Set("b:1", lbtest.Up)
		time.Sleep(2 * lbtest.Backoff)
		f.expect("B is back", "b:1")
		f.expectOpen("B is back", "b:1", "c:1", "d:1")
		time.Sleep(priority.RetentionTime)
		f.expectOpen("the others have not been needed for a while", "b:1")
	})
}

// gRFC A56: a cluster that does not connect is given up after 10 seconds.
func TestFailoverFromAClusterThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.close()
		f.network.Set("b:1", lbtest.Silent)
		f.update(in("B", "b:1"), in("C", "c:1"))
		time.Sleep(priority.FailoverTimeout - 1)
		f.expect("just before", waits)
		f.expectOpen("just before", "b:1")
		time.Sleep(time.Nanosecond)
		f.expect("after 10 s", "c:1")
	})
}

// gRFC A74, "Changes in xds Resolver": an underlying cluster that does not exist
// is skipped; one of which nothing is known yet has its time to come.
func TestClustersThatHaveNothingToOffer(t *testing.T) {
	t.Parallel()
	gone := aggregate.Underlying{Name: "B", Config: cluster.Config{Err: errors.New("no B")}}
	for _, tc := range []struct {
		given string
		first aggregate.Underlying
		after time.Duration
	}{
		{"does not exist", gone, 0},
		{"has no endpoint", in("B"), 0},
		{"is not known", aggregate.Underlying{Name: "B"}, priority.FailoverTimeout},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				defer f.close()
				f.update(tc.first, in("C", "c:1"))
				if tc.after > 0 {
					f.expect("at first", waits)
					time.Sleep(tc.after)
				}
				f.expect("then", "c:1")
				f.update(in("B", "b:1"), in("C", "c:1"))
				f.expect("when it has an endpoint", "b:1")
			})
		})
	}
}

func TestWhatIsKnownDecidesWhatRPCsSee(t *testing.T) {
	t.Parallel()
	failed := aggregate.Underlying{Name: "B", Config: cluster.Config{Err: errors.New("no B")}}
	for _, tc := range []struct {
		given  string
		config aggregate.Config
		state  connectivity.State
		want   string
	}{
		{"nothing yet", aggregate.Config{}, connectivity.Connecting, waits},
		{"an error", aggregate.Config{Err: status.Error(2, "a cycle")}, connectivity.TransientFailure, "a cycle"},
		{"only a cluster that does not exist", aggregate.Config{Underlying: []aggregate.Underlying{failed}}, connectivity.TransientFailure,
			`no cluster of aggregate cluster "A" works; of the last one: no B`},
		{"no cluster that can be reached", aggregate.Config{Underlying: []aggregate.Underlying{failed, in("C", "refused:1")}},
			connectivity.TransientFailure, `aggregate cluster "A" works; of the last one: dynxds: no endpoint of cluster "C" (ClusterLoadAssignment "C") can be reached`},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				defer f.close()
				f.network.Set("refused:1", lbtest.Refused)
				f.update(in("B", "b:1"), in("X", "x:1"))
				f.updateTo(tc.config)
				f.expect("then", tc.want)
				if got := f.cc.State().ConnectivityState; got != tc.state {
					t.Errorf("state %v, want %v", got, tc.state)
				}
				_, err := f.cc.Pick(context.Background())
				if _, isStatus := status.FromError(err); isStatus && tc.config.Err != nil {
					t.Errorf("%v is a status error, which ends even RPCs that wait for ready", err)
				}
				f.update(in("B", "b:1"))
				f.expect("when it is repaired", "b:1")
			})
		})
	}
}

// gRFC A56: what stays keeps its connections, in whatever order, and an update of
// one cluster does not touch another.
func TestUpdatesKeepConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.close()
		b, c := in("B", "b:1"), in("C", "c:1")
		f.update(b, c)
		first := f.subConn()
		f.network.Set("b:1", lbtest.Refused)
		synctest.Wait()
		second := f.subConn()
		f.network.Set("b:1", lbtest.Up)
		time.Sleep(2 * lbtest.Backoff)
		synctest.Wait()
		if f.subConn() != first {
			t.Fatal("B was connected anew")
		}
		f.update(c, b)
		if f.subConn() != second {
			t.Error("C was connected anew when the order changed")
		}
		f.update(b, in("C", "c:2"))
		if f.subConn() != first {
			t.Error("B was connected anew when C changed")
		}
		f.update(in("N", "n:1"), b)
		f.expect("a new cluster in front", "n:1")
		f.update(b)
		if f.subConn() != first {
			t.Error("B was connected anew when another cluster came and went")
		}
	})
}

// gRFC A75: policy, limit and drops are those of the underlying cluster.
func TestEachClusterHasItsOwnConfiguration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.close()
		b, c := in("own-B", "b:1"), in("own-C", "c:1", "c:2")
		b.Config.Cluster.MaxRequests = 1
		c.Config.Cluster.LBPolicy = xdsresource.PolicyRandom
		c.Config.Endpoints.Drops = []xdsresource.Drop{{Category: "all", PerMillion: xdsresource.Million}}
		f.update(b, c)
		held, err := f.cc.State().Picker.Pick(balancer.PickInfo{Ctx: context.Background()})
		if err != nil {
			t.Fatal(err)
		}
		f.expect("the limit of B", "max_requests")
		f.network.Set("b:1", lbtest.Refused)
		f.expect("the drops of C", `RPC to cluster "own-C" dropped`)
		held.Done(balancer.DoneInfo{})
		f.expectOpen("the policy of C", "b:1", "c:1", "c:2")
	})
}

// gRFC A37, "Priority Policy Reresolution Handling": a cluster that goes on
// failing does not have the names of the one in use looked up again.
func TestReresolutionIsUpToTheCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.close()
		asked := map[string]int{}
		byDNS := func(u aggregate.Underlying) aggregate.Underlying {
			u.Config.ResolveNow = func() { asked[u.Name]++ }
			return u
		}
		f.network.Set("b:1", lbtest.Refused)
		f.update(byDNS(in("B", "b:1")), byDNS(in("C", "c:1")))
		f.expect("B fails", "c:1")
		time.Sleep(10 * lbtest.Backoff)
		synctest.Wait()
		if asked["B"] < 5 || asked["C"] != 0 {
			t.Errorf("names were asked for again %v times, want some for B and none for C", asked)
		}
		f.network.Set("c:1", lbtest.Refused)
		synctest.Wait()
		if asked["C"] == 0 {
			t.Error("the names of C were not asked for again when its connection ended")
		}
	})
}

func TestCloseEndsAllConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.network.Set("b:1", lbtest.Refused)
		f.update(in("B", "b:1"), in("C", "c:1"))
		f.expect("before", "c:1")
		f.close()
		f.expectOpen("closed")
	})
}

func TestExitIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.close()
		f.loop.Do(f.policy.ExitIdle) // before there is anything
		b := in("B", "b:1")
		b.Config.Cluster.LBPolicy, b.Config.Cluster.AcrossLocalities = xdsresource.PolicyRingHash, true
		f.update(b)
		f.expectOpen("a ring is idle")
		f.loop.Do(f.policy.ExitIdle)
		f.expectOpen("after ExitIdle", "b:1")
	})
}
