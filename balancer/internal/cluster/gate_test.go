package cluster_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/traffic"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// limited is a cluster of a name of its own, as the counters are the process's.
func limited(service string, limit uint32, drops ...xdsresource.Drop) cluster.Config {
	e := endpoints(at("a", 0, "a:1"))
	e.Drops = drops
	return cluster.Config{
		Cluster:   &xdsresource.Cluster{Name: "backend", EDSServiceName: service, LBPolicy: "round_robin", Limits: xdsresource.Limits{MaxRequests: limit}},
		Endpoints: e,
	}
}

func (f *fixture) pick() (balancer.PickResult, *decision.Decision, error) {
	d := &decision.Decision{Context: context.Background(), Extra: new(decision.Extra)}
	result, err := f.CC.State().Picker.Pick(balancer.PickInfo{Ctx: d})
	return result, d, err
}

func reportOf(service string) *inspect.Traffic {
	c := traffic.Use(traffic.Key{Cluster: "backend", Service: service})
	defer c.Release()
	return c.Report()
}

// gRFC A27, "drop_overloads": each entry drops its share of what those before
// it leave, in parts of a million.
func TestDropsInOrderByShare(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		const n = 100_000
		f.update(limited(t.Name(), n, xdsresource.Drop{Category: "lb", PerMillion: 200_000},
			xdsresource.Drop{Category: "throttle", PerMillion: 500_000}))
		through := 0
		for range n {
			result, d, err := f.pick()
			if err == nil {
				through++
				result.Done(balancer.DoneInfo{})
				continue
			}
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), `cluster "backend" dropped`) {
				t.Fatalf("a dropped RPC ends with %v, want UNAVAILABLE that names the cluster", err)
			}
			if !d.Dropped() {
				t.Fatal("a dropped RPC may be retried")
			}
		}
		r := reportOf(t.Name())
		counts := []int{int(r.Dropped["lb"]), int(r.Dropped["throttle"]), through}
		if counts[0]+counts[1]+counts[2] != n {
			t.Fatalf("drops and RPCs %v do not make %d", counts, n)
		}
		xdstest.CheckShares(t, "lb, throttle, through", counts, 0.2, 0.4, 0.4)
	})
}

// atHash is a place on the ring.
type atHash uint64

func (atHash) Origin() (context.Context, string, string) { return context.Background(), "", "" }
func (h atHash) Hash() (uint64, bool)                    { return uint64(h), true }

// A ring's picker finds an endpoint as soon as that is connected, which may be before the cluster has a
// picker that is READY. Such RPCs count as any other.
func TestRPCsOfAnOlderPickerAreCounted(t *testing.T) {
	for _, policy := range []string{xdsresource.PolicyRingHash, xdsresource.PolicyMaglev} {
		t.Run(policy, func(t *testing.T) {
			test(t, func(t *testing.T, f *fixture) {
				config := limited(t.Name(), 1)
				config.Cluster.LBPolicy, config.Cluster.AcrossLocalities = policy, true
				f.update(config)
				older := f.CC.State()
				info := balancer.PickInfo{Ctx: &decision.Decision{Context: context.Background()}}
				if _, err := older.Picker.Pick(info); err != balancer.ErrNoSubConnAvailable || older.ConnectivityState != connectivity.Idle {
					t.Fatalf("the first RPC ended with %v, in state %v", err, older.ConnectivityState)
				}
				synctest.Wait()
				result, err := older.Picker.Pick(info)
				xdstest.NoError(t, err)
				xdstest.Equal(t, "RPCs in flight", 1, reportOf(t.Name()).InFlight)
				if _, err := older.Picker.Pick(info); status.Code(err) != codes.Unavailable {
					t.Errorf("an RPC over the limit ended with %v", err)
				}
				if result.Done != nil {
					result.Done(balancer.DoneInfo{})
				}
				xdstest.Equal(t, "RPCs in flight at the end", 0, reportOf(t.Name()).InFlight)
			})
		})
	}
}

// gRFC A32: exactly max_requests, over all channels of the process.
func TestCircuitBreakingIsExactOverChannels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 5
		service := t.Name()
		f, other := newFixture(t), newFixture(t)
		f.update(limited(service, limit))
		other.update(limited(service, limit))

		// The counter is the process's, and outlives the fixtures.
		var ends []func(balancer.DoneInfo)
		defer func() {
			for _, end := range ends {
				end(balancer.DoneInfo{})
			}
		}()
		end := func() { ends[0](balancer.DoneInfo{}); ends = ends[1:] }
		through := func(from *fixture, when string) {
			t.Helper()
			result, _, err := from.pick()
			if err != nil {
				t.Errorf("%s an RPC was refused: %v", when, err)
				return
			}
			ends = append(ends, result.Done)
		}
		for i := range limit {
			from := []*fixture{f, other}[i%2]
			result, _, err := from.pick()
			if err != nil {
				t.Fatalf("RPC %d was refused: %v", i+1, err)
			}
			ends = append(ends, result.Done)
		}
		for _, from := range []*fixture{f, other} {
			_, d, err := from.pick()
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "5 RPCs in flight") || !d.Dropped() {
				t.Errorf("an RPC over the limit ended with %v (not to be retried: %v)", err, d.Dropped())
			}
		}
		end()
		through(other, "after one RPC had ended")

		// "if the current number of RPCs in flight is 105 and we receive a CDS
		// update lowering the limit to 100, new RPCs will still fail"
		f.update(limited(service, limit-2))
		end()
		end()
		if _, _, err := f.pick(); err == nil {
			t.Error("an RPC went through over the lowered limit")
		}
		end()
		through(f, "below the lowered limit")
		if r := reportOf(service); r.Refused != 3 || r.InFlight != 3 {
			t.Errorf("%d refused, %d in flight; want 3 and 3", r.Refused, r.InFlight)
		}
		// Another EDS service has a counter of its own.
		f.update(limited(service+"/new", 1))
		through(f, "for another EDS service")
	})
}
