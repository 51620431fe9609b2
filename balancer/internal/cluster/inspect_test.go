package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/priority"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func (f *fixture) inspect() (d inspect.Cluster) {
	synctest.Wait()
	f.Loop.Do(func() { d = f.Policy.Inspect() })
	return d
}

// expectUses checks why each priority is in use or not; those in use are marked with a star.
func (f *fixture) expectUses(when string, want ...string) {
	f.T.Helper()
	var got []string
	priorities := f.inspect().Priorities
	for i, text := range livestate.PriorityReasons(priorities) {
		p := &priorities[i]
		if p.Use.InUse {
			text = "* " + text
		}
		got = append(got, fmt.Sprintf("%d %s (%s, %s)", p.Number, text, p.Use.Status, p.State))
	}
	xdstest.Equal(f.T, when+": the priorities", want, got)
}

// clock returns the time of the bubble after some seconds, as inspection writes it. Bubbles
// start at midnight.
func clock(seconds int) string {
	return time.Date(2000, 1, 1, 0, 0, seconds, 0, time.UTC).Format(time.RFC3339)
}

// Why each priority is in use or not, through a failover and back (gRFC A56).
func TestInspectSaysWhyAPriorityIsInUse(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.Network.Set("a:1", lbtest.Silent)
		f.update(serving(at("a", 0, "a:1"), at("b", 1, "b:1"), at("c", 2, "c:1")))
		f.expectUses("at first",
			"0 * connecting, failover timer running since "+clock(0)+" (connecting, CONNECTING)",
			"1 not started: priority 0 is connecting, failover timer running since "+clock(0)+" (not started, IDLE)",
			"2 not started: priority 0 is connecting, failover timer running since "+clock(0)+" (not started, IDLE)")
		f.Network.Set("b:1", lbtest.Silent)
		time.Sleep(priority.FailoverTimeout)
		f.expectUses("after 10 s",
			"0 connecting, failover timer ran out at "+clock(10)+" (10s); priority 1 is in use (connecting, CONNECTING)",
			"1 * connecting, failover timer running since "+clock(10)+" (connecting, CONNECTING)",
			"2 not started: priority 1 is connecting, failover timer running since "+clock(10)+" (not started, IDLE)")
		f.Network.Set("b:1", lbtest.Up)
		f.expectUses("priority 1 connects",
			"0 connecting, failover timer ran out at "+clock(10)+" (10s); priority 1 is in use (connecting, CONNECTING)",
			"1 * ready (ready, READY)",
			"2 not started: priority 1 is ready (not started, IDLE)")
		f.Network.Set("a:1", lbtest.Refused)
		f.expectUses("priority 0 is refused",
			"0 failed: dial a:1: connection refused; priority 1 is in use (failed, TRANSIENT_FAILURE)",
			"1 * ready (ready, READY)",
			"2 not started: priority 1 is ready (not started, IDLE)")
		f.Network.Set("a:1", lbtest.Up)
		time.Sleep(lbtest.Backoff)
		f.expectUses("priority 0 is back",
			"0 * ready (ready, READY)",
			"1 ready; deactivated since "+clock(11)+" because priority 0 is ready; connected until "+clock(11+15*60)+" (ready, READY)",
			"2 not started: priority 0 is ready (not started, IDLE)")
		use := f.inspect().Priorities[1].Use
		if use.Deactivated.IsZero() || use.RetentionEnd.Sub(use.Deactivated) != priority.RetentionTime {
			t.Errorf("priority 1 is deactivated since %v until %v, want %v in between", use.Deactivated, use.RetentionEnd, priority.RetentionTime)
		}
		time.Sleep(priority.RetentionTime)
		f.expectUses("15 min later",
			"0 * ready (ready, READY)",
			"1 not started: priority 0 is ready (not started, IDLE)",
			"2 not started: priority 0 is ready (not started, IDLE)")
	})
}

func TestInspectSaysWhyNoPriorityWorks(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.Network.Set("a:1", lbtest.Refused)
		f.Network.Set("b:1", lbtest.Refused)
		f.update(serving(at("a", 0, "a:1")))
		f.expectUses("the only one", "0 * failed: dial a:1: connection refused; there is no other (failed, TRANSIENT_FAILURE)")
		f.update(serving(at("a", 0, "a:1"), at("b", 1, "b:1")))
		f.expectUses("both fail",
			"0 failed: dial a:1: connection refused; priority 1 is in use (failed, TRANSIENT_FAILURE)",
			"1 * failed: dial b:1: connection refused; in use because none works and this is the last (failed, TRANSIENT_FAILURE)")
		f.Network.Set("b:1", lbtest.Silent)
		f.update(serving(at("a", 0, "a:1"), at("b", 1, "b:1"), sick(at("c", 2, "c:1"))))
		d := f.inspect()
		if d.Phase != inspect.PhaseServing || d.State != inspect.TransientFailure {
			t.Errorf("the cluster is %s and %s, want serving and TRANSIENT_FAILURE", d.Phase, d.State)
		}
		if use, want := d.Priorities[2].Use, "no locality of the priority has a usable endpoint"; use.Error != want || !use.InUse {
			t.Errorf("the last priority: %+v, want the error %q, in use", use, want)
		}
		want := "priority 2 is in use: failed: no locality of the priority has a usable endpoint; in use because none works and this is the last"
		xdstest.Equal(t, "the cluster says", want, livestate.Why(&d))
	})
}

// The phases before, without and after endpoints.
func TestInspectPhases(t *testing.T) {
	t.Parallel()
	dns := *backend
	dns.Kind = xdsresource.ClusterStrictDNS
	eds := *backend
	eds.EDSServiceName = "eds"
	subset := *backend
	subset.Subsets = xdsresource.Subsets{OfPriority: 5, OfLocality: 4}
	unregistered := *backend
	unregistered.LBPolicy = "custom"
	for _, tc := range []struct {
		name   string
		config cluster.Config
		phase  inspect.Phase
		state  inspect.State
		why    string
	}{
		{"nothing is known", cluster.Config{}, inspect.PhaseResolving, inspect.Connecting, "RPCs wait for the Cluster"},
		{"no endpoints yet", cluster.Config{Cluster: &eds}, inspect.PhaseResolving, inspect.Connecting, `RPCs wait for ClusterLoadAssignment "eds"`},
		{"no addresses yet", cluster.Config{Cluster: &dns}, inspect.PhaseResolving, inspect.Connecting, "RPCs wait for the addresses from DNS"},
		{"an error", cluster.Config{Err: errors.New("no such thing")}, inspect.PhaseFailed, inspect.TransientFailure, "no such thing"},
		{"no usable endpoint", serving(sick(at("a", 0, "a:1"))), inspect.PhaseFailed, inspect.TransientFailure,
			`dynxds: cluster "backend" has no endpoint to send RPCs to: ClusterLoadAssignment "backend-eds" has none that is HEALTHY or UNKNOWN`},
		{"an unknown policy", cluster.Config{Cluster: &unregistered, Endpoints: endpoints(at("a", 0, "a:1"))}, inspect.PhaseServing, inspect.TransientFailure,
			`priority 0 is in use: failed: load-balancing policy "custom" is not registered with gRPC; there is no other`},
		{"endpoints", serving(at("a", 0, "a:1")), inspect.PhaseServing, inspect.Ready, "priority 0 is in use: ready"},
		{"a subset of the endpoints", cluster.Config{Cluster: &subset, Endpoints: endpoints(at("a", 0, "a:1"))}, inspect.PhaseServing, inspect.Ready,
			"priority 0 is in use: ready"},
	} {
		t.Run(tc.name, subtest(func(t *testing.T, f *fixture) {
			tc.config.Notes = note("an update was rejected")
			f.update(tc.config)
			d := f.inspect()
			xdstest.Equal(t, "notes", "an update was rejected", d.Notes)
			if c := tc.config.Cluster; c != nil {
				xdstest.Equal(t, "subsets", c.Subsets, xdsresource.Subsets{OfPriority: d.SubsetOfPriority, OfLocality: d.SubsetOfLocality})
			}
			if d.Phase != tc.phase || d.State != tc.state || livestate.Why(&d) != tc.why {
				t.Errorf("the cluster is %s and %s: %q; want %s and %s: %q", d.Phase, d.State, livestate.Why(&d), tc.phase, tc.state, tc.why)
			}
			// The same cluster, not needed yet, has no connections.
			before := cluster.Describe("backend", &tc.config)
			if tc.phase != inspect.PhaseServing {
				if tc.name != "no usable endpoint" && (before.Phase != tc.phase || livestate.Why(&before) != tc.why) {
					t.Errorf("before it is needed it is %s: %q; want %s: %q", before.Phase, livestate.Why(&before), tc.phase, tc.why)
				}
				return
			}
			if before.Phase != inspect.PhaseDormant || before.State != inspect.Idle {
				t.Errorf("before it is needed it is %s and %s", before.Phase, before.State)
			}
			if p := before.Priorities; len(p) != 1 || p[0].Use.Status != inspect.StatusNotStarted || p[0].Localities[0].Endpoints[0].State != inspect.Idle {
				t.Errorf("before it is needed it has the priorities %+v", p)
			}
		}))
	}
}

// Localities and endpoints with what the control plane and the connections say of them.
func TestInspectLocalitiesAndEndpoints(t *testing.T) {
	t.Parallel()
	for _, across := range []bool{false, true} {
		t.Run(fmt.Sprintf("across localities %v", across), subtest(func(t *testing.T, f *fixture) {
			f.Network.Set("a:2", lbtest.Refused)
			f.Network.Set("b:1", lbtest.Refused)
			a, b := at("a", 0, "a:1", "a:2", "a:3"), at("b", 0, "b:1")
			a.Weight, a.ID.Region, a.ID.SubZone = 3, "r", "s"
			a.Endpoints[0].Hostname, a.Endpoints[0].Weight = "host", 5
			a.Endpoints[1].Additional = []string{"a:4"}
			a.Endpoints[2].Health = xdsresource.HealthDraining
			c := serving(a, b)
			cluster := *c.Cluster
			cluster.AcrossLocalities = across
			c.Cluster = &cluster
			f.update(c)
			time.Sleep(100 * time.Millisecond)
			now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
			if across { // The endpoints are connected one after the other, or at once; it is not this test's matter.
				now = time.Time{}
			}
			want := []inspect.Locality{
				{Region: "r", Zone: "a", SubZone: "s", Weight: 3, State: inspect.Ready, Endpoints: []inspect.Endpoint{
					{Addresses: []string{"a:1"}, Hostname: "host", Health: "UNKNOWN", Weight: 5, State: inspect.Ready, Since: now},
					{Addresses: []string{"a:2", "a:4"}, Health: "UNKNOWN", Weight: 1, State: inspect.Ready, Since: now, Connected: "a:4"},
					{Addresses: []string{"a:3"}, Health: "DRAINING", Weight: 1, State: inspect.Idle},
				}},
				{Zone: "b", Weight: 1, State: inspect.TransientFailure, Endpoints: []inspect.Endpoint{
					{Addresses: []string{"b:1"}, Health: "UNKNOWN", Weight: 1, State: inspect.TransientFailure, Since: now,
						Error: "dial b:1: connection refused", ErrorTime: now},
				}},
			}
			if across {
				want[1].State = inspect.Ready // One policy picks among all of them.
			}
			got := f.inspect().Priorities[0].Localities
			equalTime := cmp.Comparer(func(x, y time.Time) bool { return across || x.Equal(y) })
			xdstest.Equal(t, "localities", want, got, equalTime)
		}))
	}
}

// gRFC A75: outlier detection covers all priorities of a cluster together, and fails over.
func TestEjectionOfAWholePriority(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		c := by("round_robin", "", at("a", 0, "a:1"), at("b", 1, "b:1"))
		c.Cluster.Outliers = ejecting(1)
		f.update(c)
		result, _, err := f.pick()
		xdstest.NoError(t, err)
		result.Done(balancer.DoneInfo{Err: fmt.Errorf("failed")})
		if e := f.inspect().Priorities[0].Localities[0].Endpoints[0]; e.Ejection != nil {
			t.Errorf("before the first interval is over the ejection is %+v", e.Ejection)
		}
		time.Sleep(10 * time.Second)
		d := f.inspect()
		start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		want := &inspect.Ejection{Since: start.Add(10 * time.Second), Until: start.Add(40 * time.Second), Multiplier: 1, Method: "failure_percentage"}
		e := d.Priorities[0].Localities[0].Endpoints[0]
		if diff := cmp.Diff(want, e.Ejection); diff != "" || e.State != inspect.Ready {
			t.Errorf("the endpoint is %s, and its ejection (-want +got):\n%s", e.State, diff)
		}
		f.Expect("a is ejected", "b:1")
		f.expectUses("a is ejected",
			"0 failed: outlier detection has ejected 1 of 1 endpoints; priority 1 is in use (failed, TRANSIENT_FAILURE)",
			"1 * ready (ready, READY)")
		time.Sleep(40 * time.Second)
		if e := f.inspect().Priorities[0].Localities[0].Endpoints[0]; e.Ejection != nil {
			t.Errorf("after its end the ejection is %+v", e.Ejection)
		}
		f.Expect("a is back", "a:1")
	})
}

func TestInspectTraffic(t *testing.T) {
	// The RPCs of all clusters of a name are counted together, those of other tests included.
	newFixture := func(t testing.TB) *fixture {
		return &fixture{lbtest.NewFixture(t, func(env *tree.Env, changed func()) *cluster.Policy { return cluster.New(env, t.Name(), changed) })}
	}
	lbtest.Subtest(newFixture, func(t *testing.T, f *fixture) {
		c := serving(at("a", 0, "a:1"))
		limited := *c.Cluster
		limited.MaxRequests = 2
		c.Cluster = &limited
		c.Endpoints.Drops = []xdsresource.Drop{{Category: "none", PerMillion: 0}}
		f.update(c)
		synctest.Wait()
		var done []func(balancer.DoneInfo)
		for range 3 {
			if result, err := f.CC.State().Picker.Pick(balancer.PickInfo{Ctx: context.Background()}); err == nil {
				done = append(done, result.Done)
			}
		}
		want := &inspect.Traffic{Picked: 2, InFlight: 2, Limit: 2, Refused: 1, Dropped: map[string]uint64{"none": 0}}
		xdstest.Equal(t, "with RPCs in flight", want, f.inspect().Traffic)
		for _, end := range done {
			end(balancer.DoneInfo{})
		}
		want.InFlight = 0
		xdstest.Equal(t, "after them", want, f.inspect().Traffic)
	})(t)
}
