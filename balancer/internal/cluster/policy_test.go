package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// by is serving with another policy.
func by(policy, config string, localities ...xdsresource.Locality) cluster.Config {
	return cluster.Config{
		Cluster: &xdsresource.Cluster{Name: "backend", LBPolicy: policy, LBConfig: config,
			Limits: xdsresource.Limits{MaxRequests: xdsresource.DefaultMaxRequests}, AcrossLocalities: policy == xdsresource.PolicyRingHash},
		Endpoints: endpoints(localities...),
	}
}

// counting counts how often the hash of an RPC is computed.
type counting struct{ n int }

func (*counting) Origin() (context.Context, string, string) { return context.Background(), "", "" }
func (c *counting) Hash() (uint64, bool)                    { c.n++; return 7, true }

// gRFC A42: the hash of an RPC is computed once, and only where the policy of its
// cluster picks by it; not even ring hash does if it has a header of its own for
// that (gRFC A76).
func TestHashIsComputedOnlyForPoliciesThatNeedIt(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		policy, config string
		want           int
	}{
		{"round_robin", "", 0},
		{"least_request_experimental", "", 0},
		{"pick_first", "", 0},
		{"weighted_round_robin", "", 0},
		{xdsresource.PolicyRandom, "", 0},
		{xdsresource.PolicyRingHash, `{"requestHashHeader":"h"}`, 0},
		{xdsresource.PolicyRingHash, "", 1},
	} {
		t.Run(tc.policy+tc.config, subtest(func(t *testing.T, f *fixture) {
			f.update(by(tc.policy, tc.config, at("a", 0, "a:1"), at("b", 0, "b:1")))
			var rpc counting
			ctx := &decision.Decision{Context: context.Background(), Extra: &decision.Extra{RPC: &rpc}}
			f.CC.Pick(ctx)
			synctest.Wait()
			for range 3 {
				if _, err := f.CC.Pick(ctx); err != nil {
					t.Error(err)
				}
			}
			xdstest.Equal(t, "how often the hash was computed", tc.want, rpc.n)
		}))
	}
}

// gRFC A68: clients have subsets of their own.
func TestSubsetsOfSeveralClients(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		c := by("round_robin", "", at("a", 0, "a:1", "b:1", "c:1", "d:1", "e:1", "f:1", "g:1", "h:1"))
		c.Cluster.Subsets.OfPriority = 4
		f.update(c)
		synctest.Wait()
		first := f.CC.Open()
		for range 10 {
			other := newFixture(t)
			other.update(c)
			synctest.Wait()
			if !slices.Equal(other.CC.Open(), first) {
				return
			}
		}
		t.Errorf("all clients connect to %v", first)
	})
}

// gRFC A68: a client connects to its subset, and keeps to it over updates.
func TestClientConnectsToASubset(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		policy  string
		subsets xdsresource.Subsets
		want    [2]int // of the connections to localities a and b, those of a alone if b is -1
	}{
		{"all", "round_robin", xdsresource.Subsets{}, [2]int{4, 4}},
		{"of each locality", "round_robin", xdsresource.Subsets{OfLocality: 2}, [2]int{2, 2}},
		{"of the priority", "round_robin", xdsresource.Subsets{OfPriority: 3}, [2]int{3, -1}},
		{"of both", "round_robin", xdsresource.Subsets{OfPriority: 7, OfLocality: 1}, [2]int{1, 1}},
		{"of more than there are", xdsresource.PolicyRandom, xdsresource.Subsets{OfPriority: 8}, [2]int{4, 4}},
		{"across localities", "across", xdsresource.Subsets{OfPriority: 3}, [2]int{3, -1}},
	} {
		t.Run(tc.name, subtest(func(t *testing.T, f *fixture) {
			c := by(tc.policy, "", at("a", 0, "a1:1", "a2:1", "a3:1", "a4:1"), at("b", 0, "b1:1", "b2:1", "b3:1", "b4:1"))
			if tc.policy == "across" {
				c.Cluster.LBPolicy, c.Cluster.AcrossLocalities = "round_robin", true
			}
			c.Cluster.Subsets = tc.subsets
			f.update(c)
			f.CC.Pick(context.Background())
			synctest.Wait()
			open := f.CC.Open()
			var got [2]int
			for _, addr := range open {
				got[addr[0]-'a']++
			}
			if tc.want[1] < 0 {
				got = [2]int{got[0] + got[1], -1}
			}
			xdstest.Equal(t, fmt.Sprintf("connected localities of %v", open), tc.want, got)
			for addr := range f.Counts(100) {
				if !slices.Contains(open, addr) {
					t.Errorf("a pick goes to %q, open are %v", addr, open)
				}
			}
			other := *c.Endpoints
			c.Endpoints = &other
			f.update(c)
			f.ExpectOpen("after an update without a change", open...)
		}))
	}
}
