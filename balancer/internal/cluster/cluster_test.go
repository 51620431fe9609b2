package cluster_test

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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/priority"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture runs one cluster over a fake network, in a synctest bubble.
type fixture struct {
	network *lbtest.Network
	cc      *lbtest.ClientConn
	loop    *tree.Loop
	policy  *cluster.Policy
}

func newFixture() *fixture {
	f := &fixture{network: lbtest.NewNetwork(), loop: tree.NewLoop(func() {})}
	f.cc = lbtest.NewClientConn(f.network)
	env := lbtest.NewEnv(f.loop, f.cc)
	publish := func() { f.cc.UpdateState(f.policy.State()) }
	f.loop.Do(func() { f.policy = cluster.New(env, "backend", publish) })
	f.loop.Do(publish)
	return f
}

func (f *fixture) update(c cluster.Config) {
	f.loop.Do(func() {
		f.policy.Update(c)
		f.cc.UpdateState(f.policy.State())
	})
	synctest.Wait()
}

func (f *fixture) close() {
	f.loop.Do(f.policy.Close)
	synctest.Wait()
}

// expect checks where the next picks go, or how they fail.
func (f *fixture) expect(t *testing.T, when, want string) {
	t.Helper()
	synctest.Wait()
	for range 3 {
		addr, err := f.cc.Pick(context.Background())
		switch {
		case err == nil && addr != want:
			t.Errorf("%s: a pick goes to %q, want %q", when, addr, want)
		case err != nil && !strings.Contains(err.Error(), want):
			t.Errorf("%s: a pick fails with %q, want %q", when, err, want)
		}
	}
}

func (f *fixture) expectOpen(t *testing.T, when string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), f.cc.Open()); diff != "" {
		t.Errorf("%s: open connections (-want +got):\n%s", when, diff)
	}
}

var backend = &xdsresource.Cluster{Name: "backend", LBPolicy: "round_robin", MaxRequests: xdsresource.DefaultMaxRequests}

const waits = "no SubConn is available"

func endpoints(localities ...xdsresource.Locality) *xdsresource.Endpoints {
	return &xdsresource.Endpoints{Name: "backend-eds", Localities: localities}
}

func at(zone string, priority uint32, addrs ...string) xdsresource.Locality {
	l := xdsresource.Locality{ID: xdsresource.LocalityID{Zone: zone}, Priority: priority, Weight: 1}
	for _, a := range addrs {
		l.Endpoints = append(l.Endpoints, xdsresource.Endpoint{Address: a, Weight: 1})
	}
	return l
}

func serving(localities ...xdsresource.Locality) cluster.Config {
	return cluster.Config{Cluster: backend, Endpoints: endpoints(localities...)}
}

func sick(l xdsresource.Locality) xdsresource.Locality {
	for i := range l.Endpoints {
		l.Endpoints[i].Health = xdsresource.HealthUnhealthy
	}
	return l
}

func TestWhatIsKnownOfTheClusterDecidesWhatRPCsSee(t *testing.T) {
	t.Parallel()
	const empty = `cluster "backend" has no endpoint to send RPCs to: ` +
		`ClusterLoadAssignment "backend-eds" has none that is HEALTHY or UNKNOWN`
	for _, tc := range []struct {
		name   string
		config cluster.Config
		state  connectivity.State
		want   string
	}{
		{"nothing yet", cluster.Config{}, connectivity.Connecting, waits},
		{"the cluster without its endpoints", cluster.Config{Cluster: backend}, connectivity.Connecting, waits},
		{"an error", cluster.Config{Err: errors.New("Cluster \"backend\" not found by server s")},
			connectivity.TransientFailure, "Cluster \"backend\" not found by server s"},
		{"an error beside endpoints", cluster.Config{Cluster: backend, Endpoints: endpoints(at("a", 0, "a:1")),
			Err: errors.New("withdrawn")}, connectivity.TransientFailure, "withdrawn"},
		{"endpoints without localities", serving(), connectivity.TransientFailure, empty},
		{"endpoints that are all unhealthy", serving(sick(at("a", 0, "a:1")), sick(at("b", 1, "b:1"))),
			connectivity.TransientFailure, empty},
		{"endpoints", serving(at("a", 0, "a:1")), connectivity.Ready, "a:1"},
		{"a healthy endpoint in a lower priority", serving(sick(at("a", 0, "a:1")), at("b", 1, "b:1")),
			connectivity.Ready, "b:1"},
		{"priorities in any order", serving(at("b", 1, "b:1"), at("a", 0, "a:1")), connectivity.Ready, "a:1"},
		{"priorities with gaps", serving(at("b", 4e9, "b:1"), at("a", 7, "a:1")), connectivity.Ready, "a:1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				defer f.close()
				f.update(tc.config)
				if got := f.cc.State().ConnectivityState; got != tc.state {
					t.Errorf("state is %v, want %v", got, tc.state)
				}
				f.expect(t, tc.name, tc.want)
			})
		})
	}
}

func TestClusterThatLosesItsResources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		f.update(serving(at("a", 0, "a:1", "gone:1")))
		f.expectOpen(t, "serving", "a:1", "gone:1")

		f.update(cluster.Config{Cluster: backend})
		f.expect(t, "resolved again", waits)
		f.expectOpen(t, "resolved again", "a:1", "gone:1")

		before := f.cc.Updates()
		f.network.Set("gone:1", lbtest.Refused)
		synctest.Wait()
		if f.cc.Updates() != before {
			t.Error("news of the old endpoints was passed on while the cluster is resolved")
		}

		f.update(serving(at("a", 0, "a:1")))
		f.expect(t, "with new endpoints", "a:1")
		f.expectOpen(t, "with new endpoints", "a:1")

		f.update(cluster.Config{Err: errors.New("withdrawn")})
		f.expect(t, "withdrawn", "withdrawn")
		f.expectOpen(t, "withdrawn")

		f.update(serving(at("a", 0, "a:1")))
		f.expect(t, "back", "a:1")
	})
}

// gRFC A56: failover after 10 s or at TRANSIENT_FAILURE, return, deactivation
// after 15 min; here with connections.
func TestFailoverAndReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		f.network.Set("a:1", lbtest.Silent)
		start := time.Now()
		f.update(serving(at("a", 0, "a:1"), at("b", 1, "b:1"), at("c", 2, "c:1")))
		f.expect(t, "while a hangs", waits)
		f.expectOpen(t, "while a hangs", "a:1")

		if err := f.cc.Await(t.Context(), connectivity.Ready); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != priority.FailoverTimeout {
			t.Errorf("failover took %v, want %v", took, priority.FailoverTimeout)
		}
		f.expect(t, "after the failover", "b:1")
		f.expectOpen(t, "after the failover", "a:1", "b:1")

		f.network.Set("b:1", lbtest.Refused)
		f.expect(t, "b fails", "c:1")

		f.network.Set("a:1", lbtest.Up)
		f.expect(t, "a is back", "a:1")
		time.Sleep(priority.RetentionTime + time.Second)
		synctest.Wait()
		f.expectOpen(t, "15 min after a is back", "a:1")

		f.network.Set("a:1", lbtest.Refused)
		f.network.Set("c:1", lbtest.Refused)
		f.expect(t, "all fail", "dial c:1: connection refused")
	})
}

// gRFC A56, "LB Policy Configuration": a locality that moves to another
// priority keeps its connections.
func TestLocalityThatChangesPriorityKeepsItsConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		f.network.Set("a:1", lbtest.Refused)
		f.update(serving(at("a", 0, "a:1"), at("b", 1, "b:1")))
		f.expect(t, "a is down", "b:1")
		before := f.pickSubConn(t)
		f.update(serving(at("b", 0, "b:1"), at("c", 1, "c:1")))
		if after := f.pickSubConn(t); after != before {
			t.Error("b was connected anew when it moved to priority 0")
		}
	})
}

func (f *fixture) pickSubConn(t *testing.T) balancer.SubConn {
	t.Helper()
	result, err := f.cc.State().Picker.Pick(balancer.PickInfo{Ctx: context.Background()})
	if err != nil {
		t.Fatal(err)
	}
	return result.SubConn
}

func TestErrorsNameClusterResourceAndCause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		f.network.Set("a:1", lbtest.Refused)
		f.update(serving(at("a", 0, "a:1")))
		_, err := f.cc.Pick(context.Background())
		const want = `dynxds: no endpoint of cluster "backend" (ClusterLoadAssignment "backend-eds") can be reached: ` +
			`dial a:1: connection refused`
		if err == nil || err.Error() != want {
			t.Errorf("error is %v, want %s", err, want)
		}
		if _, isStatus := status.FromError(err); isStatus {
			t.Error("it is a status error, which ends even RPCs that wait for ready")
		}
	})
}

func TestResourceErrorWithAStatusLeavesRPCsThatWaitAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		f.update(cluster.Config{Err: status.Error(codes.PermissionDenied, "not yours")})
		_, err := f.cc.Pick(context.Background())
		if _, isStatus := status.FromError(err); isStatus || !strings.Contains(err.Error(), "not yours") {
			t.Errorf("error is %v (a status error: %v), want the text alone", err, isStatus)
		}
	})
}

func TestSameResourcesCostNothing(t *testing.T) {
	f := newFixture()
	defer f.loop.Do(f.policy.Close)
	c := serving(at("a", 0, "a:1"))
	f.loop.Do(func() { f.policy.Update(c) })
	f.loop.Do(func() {
		if n := testing.AllocsPerRun(100, func() { f.policy.Update(c) }); n != 0 {
			t.Errorf("an update with the same resources makes %v allocations", n)
		}
	})
}
