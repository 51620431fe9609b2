package balancer_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// storm draws what happens to two clusters, A and B, each of which may be an aggregate one over X, Y
// and Z at times.
type storm struct {
	*rand.Rand
	// settled says that everything is known of all clusters.
	settled bool
}

var (
	stormClusters  = []string{"A", "B"}
	stormMembers   = []string{"X", "Y", "Z"}
	stormAddresses = []string{"a:1", "b:1", "c:1", "d:1", "e:1"}
)

// cluster returns a cluster with endpoints, or without.
func (s *storm) cluster(name string) *balancer.ClusterState {
	c := with([]string{"round_robin", "least_request_experimental", xdsresource.PolicyRandom}[s.IntN(3)], serving(name))
	c.Endpoints.Localities = nil
	switch n := s.IntN(12); {
	case n == 0:
		return &balancer.ClusterState{Err: errors.New("no cluster " + name)}
	case n == 1 && !s.settled:
		return new(balancer.ClusterState)
	case n == 2 && !s.settled:
		c.Endpoints = nil
		return c
	}
	order := s.Perm(len(stormAddresses))
	for priority := range s.IntN(3) + 1 {
		l := lbtest.Locality(fmt.Sprint(s.IntN(2)))
		l.Priority = uint32(priority)
		for range s.IntN(3) {
			if len(order) == 0 {
				break
			}
			e := xdsresource.Endpoint{Address: stormAddresses[order[0]], Weight: 1}
			if order = order[1:]; s.IntN(5) == 0 {
				e.Health = xdsresource.HealthUnhealthy
			}
			l.Endpoints = append(l.Endpoints, e)
		}
		if len(l.Endpoints) > 0 {
			c.Endpoints.Localities = append(c.Endpoints.Localities, l)
		}
	}
	return c
}

// state returns a cluster of either kind, or nil.
func (s *storm) state(name string) *balancer.ClusterState {
	switch s.IntN(6) {
	case 0:
		return nil
	case 1, 2:
		return s.cluster(name)
	}
	least := 0
	if s.settled {
		least = 1
	}
	var list []underlying
	for _, i := range s.Perm(len(stormMembers))[:least+s.IntN(len(stormMembers)+1-least)] {
		list = append(list, underlying{stormMembers[i], s.cluster(stormMembers[i])})
	}
	return over(list...)
}

// changeMember changes one of the clusters under A, if it is an aggregate one.
func (s *storm) changeMember(tr *tree) {
	before, ok := tr.last.Clusters.Get("A")
	if !ok || before.Underlying == nil || len(before.Underlying.Names) == 0 {
		return
	}
	now, list := *before, *before.Underlying
	name := list.Names[s.IntN(len(list.Names))]
	list.States = changed(list.States, states{name: s.cluster(name)})
	now.Underlying = &list
	tr.update(states{"A": &now})
}

func (s *storm) event(tr *tree) {
	name := stormClusters[s.IntN(len(stormClusters))]
	switch s.IntN(8) {
	case 0, 1, 2, 3:
		tr.update(states{name: s.state(name)})
	case 4:
		s.changeMember(tr)
	case 5:
		tr.CC.Set(stormAddresses[s.IntN(len(stormAddresses))], []lbtest.Reach{lbtest.Up, lbtest.Refused, lbtest.Silent}[s.IntN(3)])
	case 6:
		time.Sleep(time.Duration(s.Int64N(int64(20 * time.Second))))
	default:
		tr.pick(name)
	}
	if s.IntN(2) == 0 {
		synctest.Wait()
	}
}

// outcomes returns where RPCs to the clusters go, or their errors, once what they need is connected.
func (tr *tree) outcomes() map[string][]string {
	all := make(map[string][]string)
	for range 4 {
		for _, name := range stormClusters {
			found := make(map[string]bool)
			for range 60 {
				outcome, err := tr.pick(name)
				if err != nil {
					outcome = err.Error()
				}
				found[outcome] = true
			}
			all[name] = slices.Sorted(maps.Keys(found))
		}
		synctest.Wait()
	}
	return all
}

// After anything that a control plane and the network may do, RPCs go where they would go had the
// client just started, and there are no more connections than it would have.
func TestStormEndsLikeAFreshStart(t *testing.T) {
	t.Parallel()
	first := rand.Uint64N(1_000_000)
	for seed := first; seed < first+50; seed++ {
		t.Run(fmt.Sprint(seed), subtest(func(t *testing.T, tr *tree) {
			s := &storm{Rand: rand.New(rand.NewPCG(seed, 0))}
			for range 60 {
				s.event(tr)
			}
			for _, a := range stormAddresses {
				tr.CC.Set(a, lbtest.Up)
			}
			s.settled = true
			tr.update(states{"A": s.state("A"), "B": s.state("B")})
			fresh := newTree(t)
			fresh.last.Version = tr.last.Version - 1
			fresh.update(maps.Collect(tr.last.Clusters.All))
			for _, tr := range []*tree{tr, fresh} {
				tr.outcomes()
				time.Sleep(20 * time.Minute) // Priorities that are not needed have been closed.
			}
			if want, got := fresh.outcomes(), tr.outcomes(); !maps.EqualFunc(want, got, slices.Equal) {
				t.Errorf("RPCs go to %q, after a fresh start to %q", got, want)
			}
			tr.ExpectOpen("at the end", fresh.CC.Open()...)
			xdstest.Equal(t, "the state at the end", fresh.CC.State().ConnectivityState, tr.CC.State().ConnectivityState)
		}))
	}
}

// A connection that is made while the health check changes has one check, the latest.
func TestHealthCheckChangesWhileConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t)
		for i := range 500 {
			s.step("network a silent")
			s.step(fmt.Sprint("cluster health=", i))
			s.CC.Set("a:1", lbtest.Up)
			s.step("endpoints z=a")
			if got, want := s.step("watches a"), fmt.Sprintf(`["%d"] of`, i); !strings.HasPrefix(got, want) {
				t.Fatalf("open streams ask for %s, want %s", got, want)
			}
		}
	})
}
