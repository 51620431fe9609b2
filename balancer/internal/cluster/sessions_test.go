package cluster_test

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// sticky is a cluster whose sessions go to endpoints of the given statuses. Its
// limit is beyond reach, as the tests do not end all RPCs.
func sticky(statuses xdsresource.HealthSet, localities ...xdsresource.Locality) cluster.Config {
	c := *backend
	c.MaxRequests = math.MaxUint32
	c.Sessions = xdsresource.Sessions{Statuses: statuses, IdleTimeout: time.Minute}
	return cluster.Config{Cluster: &c, Endpoints: endpoints(localities...)}
}

var (
	healthy  = xdsresource.HealthSetOf(xdsresource.HealthUnknown, xdsresource.HealthHealthy)
	draining = xdsresource.HealthSetOf(xdsresource.HealthDraining)
)

// drain makes the endpoints with the given addresses DRAINING.
func drain(l xdsresource.Locality, addrs ...string) xdsresource.Locality {
	for i := range l.Endpoints {
		if slices.Contains(addrs, l.Endpoints[i].Address) {
			l.Endpoints[i].Health = xdsresource.HealthDraining
		}
	}
	return l
}

// rpcFor is an RPC of a session that asks for the addresses.
func rpcFor(addrs ...string) *decision.Decision {
	return &decision.Decision{Context: context.Background(), Extra: &decision.Extra{HostOverride: &httpfilter.HostOverride{Addresses: addrs}}}
}

func (f *fixture) pickWith(d *decision.Decision) (balancer.PickResult, error) {
	return f.CC.State().Picker.Pick(balancer.PickInfo{Ctx: d})
}

// pickFor picks for an RPC of a session that asks for the addresses. Like gRPC, it picks
// again whenever there is a new picker.
func (f *fixture) pickFor(addrs ...string) (addr, host string, err error) {
	d := rpcFor(addrs...)
	for {
		updates := f.CC.Updates()
		result, err := f.pickWith(d)
		switch {
		case err == nil:
			if result.Done != nil {
				result.Done(balancer.DoneInfo{BytesReceived: true})
			}
			return lbtest.Picked(result).Addr, d.Extra.HostOverride.Host(), nil
		case err != balancer.ErrNoSubConnAvailable:
			return "", "", err
		}
		synctest.Wait()
		if f.CC.Updates() == updates {
			return "", "", err
		}
	}
}

// expectFor checks where the picks of a session go, or how they fail.
func (f *fixture) expectFor(when string, addrs []string, want string) {
	f.T.Helper()
	synctest.Wait()
	for range 4 {
		got, host, err := f.pickFor(addrs...)
		switch {
		case err != nil && !strings.Contains(err.Error(), want):
			f.T.Errorf("%s: a pick for %v fails with %q, want %q", when, addrs, err, want)
		case err == nil && (got != want || !strings.HasPrefix(host, want)):
			f.T.Errorf("%s: a pick for %v goes to %q and reports %q, want %q", when, addrs, got, host, want)
		}
	}
}

// expectAny checks that picks of RPCs without a session go to all of the addresses and to
// no others.
func (f *fixture) expectAny(when string, want ...string) {
	f.T.Helper()
	synctest.Wait()
	got := slices.Sorted(maps.Keys(f.Counts(20)))
	if diff := cmp.Diff(want, got); diff != "" {
		f.T.Errorf("%s: picks go to (-want +got):\n%s", when, diff)
	}
}

// gRFC A55, "LB Policy for Stateful Session Affinity"; gRFC A75, "Changes in
// xds_override_host LB Policy".
func TestSessionsGoToTheirEndpoint(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.update(sticky(healthy, drain(at("a", 0, "a:1", "b:1", "c:1", "d:1"), "d:1")))
		for _, addr := range []string{"a:1", "b:1", "c:1"} {
			f.expectFor("all are there", []string{addr}, addr)
		}
		f.expectFor("the first of several", []string{"gone:1", "c:1", "a:1"}, "c:1")
		f.expectAny("others", "a:1", "b:1", "c:1")

		seen := map[string]bool{}
		for _, wanted := range [][]string{nil, {"gone:1"}, {"d:1"}} {
			for range 3 {
				addr, host, err := f.pickFor(wanted...)
				if err != nil || host != addr {
					t.Errorf("a pick for %v goes to %s, reported as %q: %v", wanted, addr, host, err)
				}
				seen[addr] = true
			}
		}
		if len(seen) != 3 || seen["d:1"] {
			t.Errorf("picks for endpoints that are not to be had go to %v, want all that are", seen)
		}
		f.ExpectOpen("in the end", "a:1", "b:1", "c:1")
	})
}

// gRFC A17: a server is not used before it has said that it is healthy, nor while it says that it is not.
// A session waits for the answer, as it does for a connection.
func TestSessionsAndHealthChecks(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		var a, b lbtest.HealthServer
		f.CC.Server = func(addr string) grpc.ClientConnInterface {
			if addr == "a:1" {
				return &a
			}
			return &b
		}
		check := func(asks *xdsresource.HealthCheck) {
			config := sticky(healthy, at("a", 0, "a:1", "b:1"))
			config.Cluster.HealthCheck = asks
			f.update(config)
			synctest.Wait()
		}
		const serving, notServing = healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING
		check(&xdsresource.HealthCheck{Service: "shop"})
		waits := func(when string) {
			t.Helper()
			synctest.Wait()
			if addr, _, err := f.pickFor("a:1"); err != balancer.ErrNoSubConnAvailable {
				t.Errorf("%s: picked %q, %v", when, addr, err)
			}
		}
		b.Answer(serving)
		waits("a has not answered")
		updates := f.CC.Updates()
		a.Answer(serving)
		if f.CC.Updates() == updates {
			t.Error("the RPC that waits is not picked for")
		}
		f.expectFor("a serves", []string{"a:1"}, "a:1")
		a.Answer(notServing)
		f.expectFor("a does not serve", []string{"a:1"}, "b:1")
		check(&xdsresource.HealthCheck{Service: "other"})
		f.expectFor("a did not serve, and has not answered for another service", []string{"a:1"}, "b:1")
		a.Answer(serving)
		b.Answer(serving)
		f.expectFor("a serves again", []string{"a:1"}, "a:1")
		f.Network.Set("a:1", lbtest.Silent)
		waits("a is away")
		f.Network.Set("a:1", lbtest.Up)
		synctest.Wait()
		waits("a is back, and has not answered")
		check(nil)
		f.expectFor("no health check", []string{"a:1"}, "a:1")
	})
}

// If the policy does not listen to health, no check runs, and sessions do not wait for one.
func TestSessionsWithoutListeners(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		config := sticky(healthy, at("a", 0, "a:1"))
		config.Cluster.HealthCheck = &xdsresource.HealthCheck{Service: "shop"}
		config.Cluster.LBPolicy = "pick_first"
		f.update(config)
		f.expectFor("connected", []string{"a:1"}, "a:1")
	})
}

// gRFC A61, "Changes to Stateful Session Affinity".
func TestSessionsKnowAllAddressesOfAnEndpoint(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		l := at("a", 0, "a:1")
		l.Endpoints[0].Additional = []string{"a:2", "a:3"}
		f.Network.Set("a:1", lbtest.Refused)
		f.update(sticky(healthy, l))
		for _, wanted := range [][]string{nil, {"a:2"}, {"gone:1", "a:2"}} {
			if addr, host, err := f.pickFor(wanted...); addr != "a:2" || host != "a:2,a:1,a:3" || err != nil {
				t.Errorf("a pick for %v goes to %s, reported as %q: %v", wanted, addr, host, err)
			}
		}
	})
}

// gRFC A55: the connection to an endpoint that begins to drain is kept, if override_host_status
// has DRAINING, for sessions only, until the endpoint is removed.
func TestSessionsStayWithADrainingEndpoint(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		all := func() xdsresource.Locality { return at("a", 0, "a:1", "b:1", "c:1") }
		f.update(sticky(healthy|draining, all()))
		f.expectFor("before", []string{"a:1"}, "a:1")
		before := f.SubConn(rpcFor("a:1"))
		f.update(sticky(healthy|draining, drain(all(), "a:1", "b:1")))
		f.ExpectOpen("a and b drain, and a has a session", "a:1", "c:1")
		f.expectFor("a drains", []string{"a:1"}, "a:1")
		if f.SubConn(rpcFor("a:1")) != before {
			t.Error("the connection of the session is another one")
		}
		f.expectAny("a and b drain", "c:1")
		f.expectFor("b drains", []string{"b:1"}, "b:1")
		f.ExpectOpen("b was asked for", "a:1", "b:1", "c:1")

		f.update(sticky(healthy, drain(all(), "a:1", "b:1")))
		f.ExpectOpen("override_host_status has lost DRAINING", "c:1")
		f.expectFor("override_host_status has lost DRAINING", []string{"a:1"}, "c:1")

		f.update(sticky(healthy|draining, drain(all(), "a:1", "b:1")))
		f.expectFor("DRAINING is back", []string{"a:1"}, "a:1")
		f.update(sticky(healthy|draining, at("a", 0, "c:1")))
		f.ExpectOpen("the endpoints were removed", "c:1")
		f.expectFor("the endpoints were removed", []string{"a:1"}, "c:1")
	})
}

func TestOnlySessionsHaveAnEndpoint(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		all := func() xdsresource.Locality { return at("a", 0, "a:1", "b:1") }
		const fails = `cluster "backend" (ClusterLoadAssignment "backend-eds") can be reached: none of its endpoints is HEALTHY or UNKNOWN`
		f.update(sticky(draining, drain(all(), "a:1", "b:1")))
		f.Expect("from the start, without session", fails)
		f.expectFor("from the start", []string{"b:1"}, "b:1")
		f.expectFor("of an endpoint that is not there", []string{"c:1"}, fails)
		f.ExpectOpen("from the start", "b:1")

		f.update(sticky(healthy|draining, all()))
		f.expectAny("back", "a:1", "b:1")
		f.expectFor("back", []string{"a:1"}, "a:1")
		f.update(sticky(healthy|draining, drain(all(), "a:1", "b:1")))
		f.expectFor("again", []string{"a:1"}, "a:1")
		f.Expect("again, without session", fails)
		f.update(sticky(healthy | draining))
		f.ExpectOpen("no endpoint at all")
	})
}

// gRFC A75: sessions use all priorities. A connection that only sessions need is opened when
// one asks for it, and closed when none has used it for idle_timeout, or when its priority has
// a connection.
func TestSessionsReachEveryPriority(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		config := sticky(healthy, at("a", 0, "a:1"), at("b", 1, "b:1", "b:2"))
		f.update(config)
		f.ExpectOpen("before any session", "a:1")
		f.expectFor("priority 1 is not in use", []string{"b:1"}, "b:1")
		f.expectAny("without session", "a:1")
		f.ExpectOpen("b:1 was asked for", "a:1", "b:1")

		time.Sleep(45 * time.Second)
		f.expectFor("45 s later", []string{"b:1"}, "b:1")
		time.Sleep(45 * time.Second)
		synctest.Wait()
		f.ExpectOpen("45 s after its last RPC", "a:1", "b:1")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		f.ExpectOpen("65 s after its last RPC", "a:1")
		f.expectFor("asked for again", []string{"b:2", "b:1"}, "b:2")
		f.ExpectOpen("two were asked for, neither of them connected", "a:1", "b:2")
		time.Sleep(65 * time.Second)
		synctest.Wait()
		f.ExpectOpen("again 65 s after its last RPC", "a:1")

		f.expectFor("asked for once more", []string{"b:1"}, "b:1")
		f.Network.Set("a:1", lbtest.Refused)
		f.expectAny("priority 0 has failed", "b:1", "b:2")
		f.ExpectOpen("the priority has a connection of its own", "a:1", "b:1", "b:2")
		f.Network.Set("a:1", lbtest.Up)
		time.Sleep(2 * lbtest.Backoff)
		f.expectAny("priority 0 is back", "a:1")
		f.expectFor("priority 0 is back", []string{"b:1"}, "b:1")

		// The endpoint moves to another priority, and its old policy is closed.
		f.update(sticky(healthy, at("a", 0, "a:1"), at("c", 1, "c:1"), at("d", 2, "b:1")))
		f.expectFor("moved", []string{"b:1"}, "b:1")
	})
}

// gRFCs A55 and A75: an IDLE endpoint is connected, a CONNECTING one waited for; if it has
// failed the policy picks.
func TestSessionsAndTheStateOfTheirEndpoint(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.Network.Set("b:1", lbtest.Silent)
		f.update(sticky(healthy, at("a", 0, "a:1", "b:1")))
		f.expectFor("b is CONNECTING", []string{"b:1"}, lbtest.Waits)
		f.expectFor("b is CONNECTING, and a is as good", []string{"b:1", "a:1"}, "a:1")
		before := f.CC.Updates()
		f.Network.Set("b:1", lbtest.Up)
		synctest.Wait()
		if f.CC.Updates() == before {
			t.Error("RPCs that wait for b are not picked for when it is READY")
		}
		f.expectFor("b is READY", []string{"b:1"}, "b:1")
		f.Network.Set("b:1", lbtest.Refused)
		f.expectFor("b has failed", []string{"b:1"}, "a:1")
		f.Network.Set("b:1", lbtest.Up)
		time.Sleep(2 * lbtest.Backoff)
		f.expectFor("b is back", []string{"b:1"}, "b:1")

		// In a priority that is not in use only sessions connect an endpoint.
		f.Network.Set("c:1", lbtest.Silent)
		f.update(sticky(healthy, at("a", 0, "a:1"), at("c", 1, "c:1")))
		f.expectFor("c hangs", []string{"c:1"}, lbtest.Waits)
		time.Sleep(10 * time.Second)
		f.ExpectOpen("c still hangs, and has been looked at as one that no session uses", "a:1", "c:1")
		f.Network.Set("c:1", lbtest.Refused)
		f.expectFor("c has failed", []string{"c:1"}, "a:1")
		time.Sleep(2 * lbtest.Backoff)
		f.Network.Set("c:1", lbtest.Up)
		f.expectFor("c can be reached", []string{"c:1"}, "c:1")
		f.Network.Set("c:1", lbtest.Silent) // The connection breaks, and the next one hangs.
		f.expectFor("c is IDLE", []string{"c:1"}, lbtest.Waits)
		f.Network.Set("c:1", lbtest.Up)
		f.expectFor("c is connected again", []string{"c:1"}, "c:1")

		// While one is CONNECTING, no other is connected.
		f.Network.Set("c:1", lbtest.Silent)
		f.update(sticky(healthy, at("a", 0, "a:1"), at("c", 1, "c:1", "d:1")))
		f.expectFor("c hangs again", []string{"c:1"}, lbtest.Waits)
		f.expectFor("c hangs again, and d is not connected", []string{"d:1", "c:1"}, lbtest.Waits)
		f.ExpectOpen("c hangs again", "a:1", "c:1")

		// Of two that are IDLE the first is connected.
		f.Network.Set("c:1", lbtest.Up)
		f.expectFor("c is connected for a third time", []string{"c:1"}, "c:1")
		f.expectFor("d is connected", []string{"d:1"}, "d:1")
		f.Network.Set("c:1", lbtest.Silent)
		f.Network.Set("d:1", lbtest.Silent)
		synctest.Wait()
		_, err := f.pickWith(rpcFor("d:1", "c:1"))
		xdstest.Equal(t, "the error while c and d are IDLE", balancer.ErrNoSubConnAvailable, err, cmpopts.EquateErrors())
		synctest.Wait()
		f.Network.Set("d:1", lbtest.Up)
		f.expectFor("d is connected again", []string{"d:1", "c:1"}, "d:1")

		// An endpoint that goes before it is connected.
		f.update(sticky(healthy, at("a", 0, "a:1"), at("c", 1, "e:1")))
		f.Loop.Do(func() {
			if _, err := f.pickWith(rpcFor("e:1")); err != balancer.ErrNoSubConnAvailable {
				t.Errorf("picked for e: %v", err)
			}
			gone := sticky(healthy, at("a", 0, "a:1"))
			f.Policy.Update(&gone)
		})
		f.ExpectOpen("e is gone", "a:1")
		f.ExpectMade("e is gone", "e:1", 0)
	})
}

// gRFC A50: an ejected endpoint is treated like one that has failed, for sessions too, and RPCs
// of sessions are counted.
func TestSessionsLeaveAnEjectedEndpoint(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		config := sticky(healthy, at("a", 0, "a:1", "b:1", "c:1"))
		config.Cluster.Outliers = ejecting(10)
		f.update(config)
		f.expectFor("before", []string{"b:1"}, "b:1")
		for range 20 {
			result, err := f.pickWith(rpcFor("b:1"))
			xdstest.NoError(t, err)
			result.Done(balancer.DoneInfo{Err: status.Error(codes.Internal, "b fails")})
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for range 10 {
			if addr, _, err := f.pickFor("b:1"); addr == "b:1" || err != nil {
				t.Errorf("b is ejected, and a pick for it goes to %q, %v", addr, err)
			}
		}
		time.Sleep(60 * time.Second)
		f.expectFor("b is back", []string{"b:1"}, "b:1")
	})
}

// gRFC A75: xds_cluster_impl is above xds_override_host, so drops and the limit apply to
// sessions. RPCs that wait for their endpoint are not dropped.
func TestSessionsAreLimited(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		config := sticky(healthy, at("a", 0, "a:1"), at("b", 1, "b:1"))
		config.Cluster.EDSServiceName, config.Cluster.MaxRequests = t.Name(), 2
		f.update(config)
		f.expectFor("below the limit", []string{"b:1"}, "b:1")
		var results []balancer.PickResult
		for range 2 {
			result, err := f.pickWith(rpcFor("b:1"))
			xdstest.NoError(t, err)
			results = append(results, result)
		}
		if _, err := f.pickWith(rpcFor("b:1")); status.Code(err) != codes.Unavailable {
			t.Errorf("a third RPC: %v, want UNAVAILABLE", err)
		}
		results[0].Done(balancer.DoneInfo{})
		results[1].Done(balancer.DoneInfo{})
		f.expectFor("below the limit again", []string{"b:1"}, "b:1")

		f.Network.Set("b:1", lbtest.Silent)
		dropping := config
		dropping.Endpoints = endpoints(config.Endpoints.Localities...)
		dropping.Endpoints.Drops = []xdsresource.Drop{{Category: "all", PerMillion: nearlyAll}}
		f.update(dropping)
		f.expectFor("while b is connected again", []string{"b:1"}, lbtest.Waits)
		if n := reportOf(t.Name()).Dropped["all"]; n != 0 {
			t.Errorf("%d RPCs that wait were dropped", n)
		}
		f.Network.Set("b:1", lbtest.Up)
		f.expectFor("everything is dropped", []string{"b:1"}, "drops 999999 of a million")
	})
}

// A cluster that is closed, or fails, leaves no connection open.
func TestSessionsEndWithTheirCluster(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*fixture){
		"closed": func(f *fixture) { f.Close() },
		"failed": func(f *fixture) { f.update(cluster.Config{Err: context.Canceled}) },
		"closed while an RPC waits": func(f *fixture) {
			f.Network.Set("c:1", lbtest.Silent)
			f.expectFor("before the end", []string{"c:1"}, lbtest.Waits)
			updates := f.CC.Updates()
			f.Close()
			xdstest.Equal(f.T, "updates after the end", updates, f.CC.Updates())
		},
	} {
		t.Run(name, subtest(func(t *testing.T, f *fixture) {
			f.update(sticky(healthy|draining, drain(at("a", 0, "a:1", "b:1"), "b:1"), at("c", 1, "c:1")))
			for _, addr := range []string{"a:1", "b:1", "c:1"} {
				f.expectFor("before", []string{addr}, addr)
			}
			f.ExpectOpen("before", "a:1", "b:1", "c:1")
			end(f)
			f.ExpectOpen("after")
			f.Close()
		}))
	}
}

func TestPicksOfSessionsCostNoAllocation(t *testing.T) {
	f := newFixture(t)

	config := sticky(healthy, at("a", 0, "a:1", "b:1"))
	f.Loop.Do(func() {
		f.Policy.Update(&config)
		f.CC.UpdateState(f.Policy.State())
	})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	xdstest.NoError(t, f.CC.Await(ctx, connectivity.Ready))
	for name, extra := range map[string]*decision.Extra{
		"without filters": nil,
		"of no session":   new(decision.Extra),
		"of a session":    rpcFor("b:1").Extra,
	} {
		info := balancer.PickInfo{Ctx: &decision.Decision{Context: context.Background(), Extra: extra}}
		pick := func() error {
			result, err := f.CC.State().Picker.Pick(info)
			if err == nil {
				result.Done(balancer.DoneInfo{})
			}
			return err
		}
		for pick() != nil {
			if ctx.Err() != nil {
				t.Fatalf("%s: no pick works", name)
			}
		}
		if n := testing.AllocsPerRun(1000, func() { _ = pick() }); n != 0 {
			t.Errorf("%s: a pick makes %v allocations", name, n)
		}
	}
}
