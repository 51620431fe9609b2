package cluster_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/traffic"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// nearlyAll is a share of drops that is not 1, which needs no endpoint.
const nearlyAll = xdsresource.Million - 1

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

func reportOf(service string) traffic.Report {
	for _, r := range traffic.Reports() {
		if r.Service == service {
			return r
		}
	}
	return traffic.Report{}
}

// A policy that counts requests in flight (gRFC A48) is told of the end of each RPC that it picked for, also if the
// RPC was dropped afterwards: its endpoint would look busy for good, and never be chosen.
func TestPolicyIsToldOfTheEnd(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]uint32{"dropped": nearlyAll, "sent": 0} {
		t.Run(name, subtest(func(t *testing.T, f *fixture) {
			c := by("least_request_experimental", `{"choiceCount":10}`, at("a", 0, "a:1"))
			c.Endpoints.Drops = []xdsresource.Drop{{Category: "all", PerMillion: drop}}
			f.update(c)
			f.Counts(200)
			c.Endpoints = endpoints(at("a", 0, "a:1", "b:1"))
			f.update(c)
			if got := f.Counts(200); got["a:1"] == 0 || got["b:1"] == 0 {
				t.Errorf("with another endpoint the RPCs go to %v, want to both", got)
			}
		}))
	}
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

// pickRetry is pick for an RPC that was attempted before.
func (f *fixture) pickRetry() (balancer.PickResult, *decision.Decision, error) {
	d := &decision.Decision{Context: &decision.Attempt{Context: context.Background(), Retry: true}, Extra: new(decision.Extra)}
	result, err := f.CC.State().Picker.Pick(balancer.PickInfo{Ctx: d})
	return result, d, err
}

// TestRetriesWithinABudgetInterval: Envoy, RetryBudget.budget_interval: RPCs count for the interval "regardless
// of if they have completed".
func TestRetriesWithinABudgetInterval(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		config := limited(t.Name(), 10)
		config.Cluster.Retries = &xdsresource.RetryLimit{Percent: 50, Budget: true, Interval: time.Second}
		f.update(config)
		for range 4 {
			result, _, err := f.pick()
			xdstest.NoError(t, err)
			result.Done(balancer.DoneInfo{})
		}
		retry, _, err := f.pickRetry()
		if err != nil {
			t.Fatalf("4 RPCs have ended within the interval: %v", err)
		}
		retry.Done(balancer.DoneInfo{})
		time.Sleep(2 * time.Second)
		if _, d, err := f.pickRetry(); err == nil || d.Failure() != rpctrace.MaxRetries {
			t.Errorf("after the interval: %v", err)
		}
	})
}

// Envoy, CircuitBreakers.Thresholds.max_retries: "The maximum number of parallel retries". The
// retry over the limit is not made; RPCs that are no retries are not limited.
func TestRetriesOverTheLimit(t *testing.T) {
	for field, limit := range map[string]*xdsresource.RetryLimit{
		"max_retries": {Fixed: 2}, "retry_budget": {Fixed: 1, Percent: 50, Budget: true},
	} {
		t.Run(field, func(t *testing.T) {
			test(t, func(t *testing.T, f *fixture) {
				config := limited(t.Name(), 10)
				config.Cluster.Retries = limit
				f.update(config)
				var done []func(balancer.DoneInfo)
				for i := range 4 {
					result, _, err := f.pick()
					if err != nil {
						t.Fatalf("RPC %d: %v", i, err)
					}
					done = append(done, result.Done)
				}
				first, d, err := f.pickRetry()
				second, _, err2 := f.pickRetry()
				if err != nil || err2 != nil || d.Failure() == rpctrace.MaxRetries {
					t.Fatalf("retries up to the limit: %v, %v", err, err2)
				}
				if field == "retry_budget" { // 50% of the 6 RPCs in flight
					third, _, err := f.pickRetry()
					xdstest.NoError(t, err)
					done = append(done, third.Done)
				}
				_, d, err = f.pickRetry()
				if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), `retries to cluster "backend" in flight as circuit_breakers.`+field) || !(d.Failure() == rpctrace.MaxRetries) || !d.Dropped() {
					t.Errorf("the retry over the limit: %v, refused: %v", err, (d.Failure() == rpctrace.MaxRetries))
				}
				if r := reportOf(t.Name()); r.InFlight != int64(len(done)+2) || r.Refused != 0 {
					t.Errorf("%+v", r)
				}
				first.Done(balancer.DoneInfo{})
				again, _, err := f.pickRetry()
				if err != nil {
					t.Fatalf("a retry after the end of another one: %v", err)
				}
				for _, d := range append(done, second.Done, again.Done) {
					d(balancer.DoneInfo{})
				}
				if r := reportOf(t.Name()); r.InFlight != 0 {
					t.Errorf("%d RPCs in flight at the end", r.InFlight)
				}
			})
		})
	}
}

// A retry that is refused for max_requests is not counted as one in flight.
func TestARetryOverMaxRequestsIsNotCounted(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		config := limited(t.Name(), 1)
		config.Cluster.Retries = &xdsresource.RetryLimit{Fixed: 1}
		f.update(config)
		rpc, _, err := f.pick()
		xdstest.NoError(t, err)
		if _, d, err := f.pickRetry(); err == nil || (d.Failure() == rpctrace.MaxRetries) || !d.Dropped() {
			t.Errorf("a retry over max_requests: %v", err)
		}
		rpc.Done(balancer.DoneInfo{})
		retry, _, err := f.pickRetry()
		xdstest.NoError(t, err)
		if _, _, err := f.pick(); err == nil {
			t.Error("an RPC over max_requests is sent")
		}
		config.Cluster = &xdsresource.Cluster{Name: "backend", EDSServiceName: t.Name(), LBPolicy: "round_robin",
			Limits: xdsresource.Limits{MaxRequests: 2, Retries: config.Cluster.Retries}}
		f.update(config)
		if _, d, err := f.pickRetry(); err == nil || d.Failure() != rpctrace.MaxRetries {
			t.Errorf("a second retry, after an RPC that was refused: %v", err)
		}
		retry.Done(balancer.DoneInfo{})
	})
}

// RPCs that wait are picked for repeatedly; each must be subject to drops only once.
func TestRPCsThatWaitAreNotDropped(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.Network.Set("a:1", lbtest.Silent)
		f.update(limited(t.Name(), 1, xdsresource.Drop{Category: "all", PerMillion: nearlyAll}))
		if _, _, err := f.pick(); err != balancer.ErrNoSubConnAvailable {
			t.Errorf("an RPC that has to wait ended with %v", err)
		}
		f.Network.Set("a:1", lbtest.Up)
		synctest.Wait()
		if _, _, err := f.pick(); status.Code(err) != codes.Unavailable {
			t.Errorf("once connected, a pick gave %v, want a drop", err)
		}
	})
}

// What the gate decides for every RPC it decides without an endpoint: the RPC does not wait, nor has a ring connect.
// A cluster that drops all RPCs is READY, as in gRPC's C-core.
func TestRPCsThatNoEndpointCouldServe(t *testing.T) {
	t.Parallel()
	drops := []xdsresource.Drop{{Category: "some", PerMillion: 0}, {Category: "all", PerMillion: xdsresource.Million}}
	with := func(limit uint32, retries *xdsresource.RetryLimit, drops ...xdsresource.Drop) func(service string) cluster.Config {
		return func(service string) cluster.Config {
			config := limited(service, limit, drops...)
			config.Cluster.Retries = retries
			return config
		}
	}
	ring := func(c cluster.Config) cluster.Config {
		c.Cluster.LBPolicy, c.Cluster.AcrossLocalities = xdsresource.PolicyRingHash, true
		return c
	}
	empty := func(c cluster.Config) cluster.Config { c.Endpoints.Localities = nil; return c }
	same := func(c cluster.Config) cluster.Config { return c }
	for _, tc := range []struct {
		name   string
		config func(service string) cluster.Config
		change func(cluster.Config) cluster.Config
		net    lbtest.Reach
		why    rpctrace.Reason
		state  connectivity.State
	}{
		{"drops, a black hole", with(1, nil, drops...), same, lbtest.Silent, rpctrace.Dropped, connectivity.Ready},
		{"drops, no server", with(1, nil, drops...), same, lbtest.Refused, rpctrace.Dropped, connectivity.Ready},
		{"drops, no endpoint", with(1, nil, drops...), empty, lbtest.Up, rpctrace.Dropped, connectivity.Ready},
		{"drops, a ring", with(1, nil, drops...), ring, lbtest.Up, rpctrace.Dropped, connectivity.Ready},
		{"max_requests, a black hole", with(0, nil), same, lbtest.Silent, rpctrace.MaxRequests, connectivity.Connecting},
		{"max_requests, no server", with(0, nil), same, lbtest.Refused, rpctrace.MaxRequests, connectivity.TransientFailure},
		{"max_requests, a ring", with(0, nil), ring, lbtest.Up, rpctrace.MaxRequests, connectivity.Idle},
		{"max_retries, a black hole", with(1, new(xdsresource.RetryLimit)), same, lbtest.Silent, rpctrace.MaxRetries, connectivity.Connecting},
		{"max_retries, a ring", with(1, new(xdsresource.RetryLimit)), ring, lbtest.Up, rpctrace.MaxRetries, connectivity.Idle},
	} {
		t.Run(tc.name, subtest(func(t *testing.T, f *fixture) {
			f.Network.Set("a:1", tc.net)
			f.update(tc.change(tc.config(t.Name())))
			f.ExpectState("before RPCs", tc.state)
			for range 2 {
				d := &decision.Decision{
					Context: &decision.Attempt{Context: context.Background(), Retry: true}, Extra: &decision.Extra{RPC: atHash(0)},
				}
				_, err := f.CC.State().Picker.Pick(balancer.PickInfo{Ctx: d})
				if status.Code(err) != codes.Unavailable || d.Failure() != tc.why {
					t.Errorf("an RPC ended with %v, for %v, want %v", err, d.Failure(), tc.why)
				}
				synctest.Wait()
			}
			f.ExpectState("after RPCs", tc.state)
			r := reportOf(t.Name())
			xdstest.Equal(t, "drops counted", tc.why == rpctrace.Dropped, r.Dropped["all"] == 2)
			xdstest.Equal(t, "RPCs in flight", 0, int(r.InFlight))

			f.Network.Set("a:1", lbtest.Up)
			f.update(limited(t.Name(), 1))
			time.Sleep(10 * time.Second) // until it connects again
			result, _, err := f.pick()
			if err != nil {
				t.Fatalf("once RPCs may pass: %v", err)
			}
			result.Done(balancer.DoneInfo{})
		}))
	}
}

// atHash is a place on the ring.
type atHash uint64

func (atHash) Origin() (context.Context, string, string) { return context.Background(), "", "" }
func (h atHash) Hash() (uint64, bool)                    { return uint64(h), true }

// An RPC also waits while the cluster is READY, if the endpoint of its hash is connecting, and is picked
// for with each new picker. It is dropped, or counted in a retry budget, only when it is sent.
func TestRPCsThatWaitForTheEndpointOfTheirHash(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		drops []xdsresource.Drop
		// sent is the result of the picks for the endpoint that is connected, retry that of a retry.
		sent, retry codes.Code
	}{
		{"drops", []xdsresource.Drop{{Category: "all", PerMillion: nearlyAll}}, codes.Unavailable, codes.Unavailable},
		{"a retry budget", nil, codes.OK, codes.Unavailable},
	} {
		t.Run(tc.name, subtest(func(t *testing.T, f *fixture) {
			config := limited(t.Name(), 10, tc.drops...)
			config.Endpoints.Localities = []xdsresource.Locality{at("a", 0, "a:1", "b:1")}
			config.Cluster.LBPolicy, config.Cluster.AcrossLocalities = xdsresource.PolicyRingHash, true
			config.Cluster.Retries = &xdsresource.RetryLimit{Percent: 5, Budget: true, Interval: time.Minute}
			f.Network.Set("b:1", lbtest.Silent)
			f.update(config)
			pick := func(i int, retry bool) error {
				d := &decision.Decision{
					Context: &decision.Attempt{Context: context.Background(), Retry: retry},
					Extra:   &decision.Extra{RPC: atHash(uint64(i) << 60)},
				}
				result, err := f.CC.State().Picker.Pick(balancer.PickInfo{Ctx: d})
				if err == nil {
					result.Done(balancer.DoneInfo{})
				}
				return err
			}
			for i := range 16 {
				pick(i, false) // has the endpoints connected
			}
			synctest.Wait()
			f.ExpectState("with a:1 connected", connectivity.Ready)
			waiting, sent := -1, -1
			for i := range 16 {
				if err := pick(i, false); err == balancer.ErrNoSubConnAvailable {
					waiting = i
				} else {
					sent = i
					xdstest.Equal(t, "the status of an RPC to a:1", tc.sent, status.Code(err))
				}
			}
			if waiting < 0 || sent < 0 {
				t.Fatalf("RPC %d waits, and RPC %d was sent; want both", waiting, sent)
			}
			for range 100 {
				if err := pick(waiting, false); err != balancer.ErrNoSubConnAvailable {
					t.Fatalf("an RPC to b:1, which is connecting, ended with %v", err)
				}
			}
			xdstest.Equal(t, "the status of a retry to a:1", tc.retry, status.Code(pick(sent, true)))
		}))
	}
}

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

func TestFailedPickIsNotInFlight(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.update(limited(t.Name(), 1))
		f.Network.Set("a:1", lbtest.Refused)
		synctest.Wait()
		for range 3 {
			if _, d, err := f.pick(); err != balancer.ErrNoSubConnAvailable && d.Failure() != rpctrace.Unreachable {
				t.Errorf("an RPC fails with %v, for %v", err, d.Failure())
			}
		}
		if r := reportOf(t.Name()); r.InFlight != 0 || r.Refused != 0 {
			t.Errorf("%d in flight and %d refused without any RPC", r.InFlight, r.Refused)
		}
		if s := f.CC.State().ConnectivityState; s == connectivity.Ready {
			t.Fatalf("state is %v", s)
		}
	})
}
