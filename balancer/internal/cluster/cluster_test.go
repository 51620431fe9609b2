package cluster_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"weak"

	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture runs one cluster over a fake network. Its state is the channel's.
type fixture struct {
	*lbtest.Bed
	policy *cluster.Graceful
	closed bool
}

func newFixture(t testing.TB) *fixture {
	f := &fixture{Bed: lbtest.NewBed(t)}
	f.Loop.Do(func() { f.policy = cluster.NewGraceful(f.Env, "backend", nil, f.publish) })
	t.Cleanup(f.close)
	return f
}

func (f *fixture) publish() { f.CC.UpdateState(f.policy.State()) }

func (f *fixture) close() {
	f.Loop.Do(func() {
		if !f.closed {
			f.policy.Close()
		}
		f.closed = true
	})
}

func test(t *testing.T, run func(*testing.T, *fixture)) { subtest(run)(t) }

func subtest(run func(*testing.T, *fixture)) func(*testing.T) { return lbtest.Subtest(newFixture, run) }

// update publishes the state after an update, and waits for what follows.
func (f *fixture) update(c cluster.Config) {
	f.Loop.Do(func() {
		f.policy.Update(&c)
		f.publish()
	})
	synctest.Wait()
}

var backend = lbtest.Cluster("backend")

func endpoints(localities ...xdsresource.Locality) *xdsresource.Endpoints {
	return &xdsresource.Endpoints{Name: "backend-eds", Localities: localities}
}

func at(zone string, priority uint32, addrs ...string) xdsresource.Locality {
	l := lbtest.Locality(zone, addrs...)
	l.Priority = priority
	return l
}

func serving(localities ...xdsresource.Locality) cluster.Config {
	return cluster.Config{Cluster: backend, Endpoints: endpoints(localities...)}
}

// gRFC A32: the limit holds for a cluster that is removed and added again, as RPCs in flight are still counted.
func TestLimitHoldsForAClusterThatReturns(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		pick := func() (balancer.PickResult, error) {
			f.update(limited("returns", 1))
			synctest.Wait()
			return f.CC.State().Picker.Pick(balancer.PickInfo{Ctx: context.Background()})
		}
		first, err := pick()
		xdstest.NoError(t, err)
		f.update(cluster.Config{Err: errors.New("withdrawn")})
		runtime.GC()
		if _, err := pick(); status.Code(err) != codes.Unavailable {
			t.Errorf("an RPC over the limit ended with %v", err)
		}
		first.Done(balancer.DoneInfo{})
		last, err := pick()
		xdstest.NoError(t, err)
		last.Done(balancer.DoneInfo{})
	})
}

func TestResourceErrorWithAStatusLeavesRPCsThatWaitAlone(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.update(cluster.Config{Err: status.Error(codes.PermissionDenied, "not yours")})
		_, err := f.CC.Pick(context.Background())
		if _, isStatus := status.FromError(err); isStatus || !strings.Contains(err.Error(), "not yours") {
			t.Errorf("error is %v (a status error: %v), want the text alone", err, isStatus)
		}
	})
}

func TestSameResourcesCostNothing(t *testing.T) {
	f := newFixture(t)

	c := serving(at("a", 0, "a:1"))
	f.Loop.Do(func() { f.policy.Update(&c) })
	f.Loop.Do(func() {
		xdstest.Equal(t, "allocations of an update with the same resources",
			0, testing.AllocsPerRun(100, func() { f.policy.Update(&c) }))
	})
}

// Policies that never served do not pile up while a control plane changes a Cluster and its endpoints are awaited.
func TestFormerPoliciesAreForgotten(t *testing.T) {
	f := newFixture(t)
	var first weak.Pointer[xdsresource.Cluster]
	for i := range 4 {
		c := *backend
		c.LBPolicy = strconv.Itoa(i)
		if i == 0 {
			first = weak.Make(&c)
		}
		f.Loop.Do(func() { f.policy.Update(&cluster.Config{Cluster: &c}) })
	}
	runtime.GC()
	if first.Value() != nil {
		t.Error("the Cluster of the first of four policies is kept")
	}
}
