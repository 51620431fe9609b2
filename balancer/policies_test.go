package balancer_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// counting counts how often the hash of an RPC is computed.
type counting struct{ n int }

func (*counting) Origin() (context.Context, string, string) { return context.Background(), "", "" }
func (c *counting) Hash() (uint64, bool)                    { c.n++; return 7, true }

// gRFC A42: the hash of an RPC is computed once, and only where the policy of its
// cluster picks by it; not even ring hash does if it has a header of its own for
// that (gRFC A76).
func TestHashIsComputedOnlyForPoliciesThatNeedIt(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]int{
		"round_robin": 0, "least_request_experimental": 0, "pick_first": 0, "weighted_round_robin": 0, "dynxds_random": 0,
		`ring_hash_experimental config={"requestHashHeader":"h"}`: 0, "ring_hash_experimental": 1, "dynxds_maglev": 1,
	} {
		t.Run(policy, testScript(func(t *testing.T, s *script) {
			s.step("cluster policy=" + policy)
			s.step("endpoints a=a b=b")
			rpc := new(counting)
			extra := &decision.Extra{RPC: rpc}
			s.rpc(backend, extra, false, false)
			synctest.Wait()
			for range 3 {
				if to := s.rpc(backend, extra, false, false); len(to) != 1 {
					t.Error(to)
				}
			}
			xdstest.Equal(t, "how often the hash of four RPCs was computed", 4*want, rpc.n)
		}))
	}
}

// testScript returns a parallel test with a script.
func testScript(run func(*testing.T, *script)) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { run(t, newScript(t)) })
	}
}

// gRFC A68: clients have subsets of their own.
func TestSubsetsOfSeveralClients(t *testing.T) {
	testScript(func(t *testing.T, first *script) {
		connected := func(s *script) string {
			s.step("cluster subset=4")
			return s.step("endpoints z=a,b,c,d,e,f,g,h")
		}
		all := connected(first)
		for range 10 {
			if connected(newScript(t)) != all {
				return
			}
		}
		t.Errorf("all clients are %s", all)
	})(t)
}

// gRFC A68: a client connects to its subset, and keeps to it over updates.
func TestClientConnectsToASubset(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string][3]int{ // of the connections to localities a and b, and to both
		"subset=0":                      {4, 4, 8},
		"subset-of-locality=2":          {2, 2, 4},
		"subset=3":                      {-1, -1, 3},
		"subset=7 subset-of-locality=1": {1, 1, 2},
		"policy=dynxds_random subset=8": {4, 4, 8},
		"across=true subset=3":          {-1, -1, 3},
	} {
		t.Run(settings, testScript(func(t *testing.T, s *script) {
			s.step("cluster " + settings)
			after := s.step("endpoints a=a1,a2,a3,a4 b=b1,b2,b3,b4")
			open := strings.Fields(after)[1:]
			xdstest.Equal(t, "connections", want[2], len(open))
			if a := strings.Count(after, " a"); want[0] >= 0 && a != want[0] {
				t.Errorf("there are %d connections to locality a of %v, want %d", a, open, want[0])
			}
			xdstest.Equal(t, "where RPCs go", strings.Join(open, " "), s.step("rpcs 100"))
			xdstest.Equal(t, "after an update without a change", after, s.step("endpoints a=a1,a2,a3,a4 b=b1,b2,b3,b4"))
		}))
	}
}

// gRFC A50: max_ejection_percent is a share of the endpoints that get RPCs, and only the endpoints of the subset do (gRFC A68).
func TestEjectionsInASubset(t *testing.T) {
	testScript(func(t *testing.T, s *script) {
		s.step("cluster subset=2 outliers=failure:50,hosts:1,volume:2,max-percent:40") // one of two, two of five
		open := strings.Fields(s.step("endpoints z=a,b,c,d,e,f"))[1:]
		s.step("rpcs 20 " + strings.Join(open, " "))
		s.step("wait 11s")
		if got := s.step("rpcs 20"); !slices.Contains(open, got) {
			t.Errorf("although all fail, RPCs go to %s, want one of %v", got, open)
		}
	})(t)
}

// gRFC A32: exactly max_requests, over all channels of the process.
func TestCircuitBreakingIsExactOverChannels(t *testing.T) {
	testScript(func(t *testing.T, one *script) {
		const full = `(max_requests: UNAVAILABLE dynxds: RPC to cluster "backend" dropped: this process has 5 RPCs in flight, as many as circuit_breakers.max_requests allows)`
		other := newScript(t)
		for _, s := range []*script{one, other} {
			s.step("cluster limit=5")
			s.step("endpoints z=a")
		}
		expect := func(s *script, step, want string) {
			t.Helper()
			xdstest.Equal(t, step, want, s.step(step))
		}
		expect(one, "hold 3", "a")
		expect(other, "hold 2", "a")
		expect(one, "hold 1", full)
		expect(other, "hold 1", full)
		one.step("end 1")
		expect(other, "hold 1", "a")
		// "if the current number of RPCs in flight is 105 and we receive a CDS
		// update lowering the limit to 100, new RPCs will still fail"
		one.step("cluster limit=3")
		one.step("endpoints z=a")
		one.step("end 2")
		expect(one, "hold 1", strings.ReplaceAll(full, "5", "3"))
		other.step("end 1")
		expect(one, "hold 1", "a")
		expect(one, "traffic", "in flight 3")
		expect(other, "traffic", "in flight 3")
		// Another EDS service has a counter of its own.
		one.named(backend).cluster.EDSServiceName += "/new"
		one.step("endpoints z=a")
		expect(one, "hold 1", "a")
		one.step("end 2")
		other.step("end 2")
	})(t)
}
