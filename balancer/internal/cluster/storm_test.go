package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// storm draws what happens to a cluster. It has one endpoint for each address, and a second address
// for the first of them.
type storm struct {
	*rand.Rand
	name  string
	store *load.Store
}

var addresses = []string{"a:1", "b:1", "c:1", "d:1", "e:1", "f:1"}

const second = "a:2"

var stormPolicies = []struct {
	name, config string
	across       bool
}{
	{"round_robin", "", false}, {"round_robin", "", true}, {"least_request_experimental", `{"choiceCount":3}`, false},
	{"weighted_round_robin", "", false}, {"pick_first", "", true}, {"pick_first", `{"shuffleAddressList":true}`, false},
	{xdsresource.PolicyRandom, "", true}, {xdsresource.PolicyRandom, "", false},
	{xdsresource.PolicyRingHash, `{"minRingSize":20}`, true}, {xdsresource.PolicyRingHash, "", false},
	{xdsresource.PolicyMaglev, `{"tableSize":251}`, true}, {xdsresource.PolicySlowStart, `{"windowNanos":10000000000}`, false},
	{xdsresource.PolicySlowStart, `{"windowNanos":10000000000,"choiceCount":2}`, true},
}

func (s *storm) oneOf(n int) bool { return s.IntN(n) == 0 }

func (s *storm) cluster() *xdsresource.Cluster {
	policy := stormPolicies[s.IntN(len(stormPolicies))]
	c := &xdsresource.Cluster{
		Name: "backend", EDSServiceName: s.name, LBPolicy: policy.name, LBConfig: policy.config, AcrossLocalities: policy.across,
		Limits:   xdsresource.Limits{MaxRequests: 1000},
		Sessions: xdsresource.Sessions{Statuses: healthy, IdleTimeout: time.Minute},
	}
	if s.oneOf(3) {
		c.Sessions.Statuses = healthy | draining
	}
	if s.oneOf(3) {
		c.Outliers = &xdsresource.OutlierDetection{
			Interval: time.Second, BaseEjectionTime: 2 * time.Second, MaxEjectionTime: 10 * time.Second, MaxEjectionPercent: 60,
			Consecutive:       [xdsresource.Runs]xdsresource.ConsecutiveEjection{{Failures: 2, EnforcementPercentage: 100}},
			FailurePercentage: &xdsresource.FailurePercentageEjection{Threshold: 50, EnforcementPercentage: 100, MinimumHosts: 1, RequestVolume: 1},
		}
	}
	if s.oneOf(2) {
		c.Load = &xdsresource.LoadReporting{Loads: s.store, Service: fmt.Sprint(s.IntN(2))}
	}
	if s.oneOf(5) {
		c.Subsets.OfPriority = uint32(s.IntN(3) + 1)
	}
	return c
}

func (s *storm) endpoints() *xdsresource.Endpoints {
	all := endpoints()
	priorities := s.IntN(3) + 1
	for _, i := range s.Perm(len(addresses))[:s.IntN(len(addresses)+1)] {
		e := xdsresource.Endpoint{Address: addresses[i], Weight: uint32(s.IntN(3) + 1), Health: xdsresource.HealthHealthy}
		switch s.IntN(6) {
		case 0:
			e.Health = xdsresource.HealthUnhealthy
		case 1:
			e.Health = xdsresource.HealthDraining
		}
		if i == 0 && s.oneOf(2) {
			e.Additional = []string{second}
		}
		if s.oneOf(8) {
			e.Hostname, e.HashKey = fmt.Sprint("host", s.IntN(2)), fmt.Sprint("key", i, s.IntN(2))
		}
		priority, id := uint32(s.IntN(priorities)), xdsresource.LocalityID{Zone: fmt.Sprint(s.IntN(2))}
		at := slices.IndexFunc(all.Localities, func(l xdsresource.Locality) bool { return l.Priority == priority && l.ID == id })
		if at < 0 {
			at = len(all.Localities)
			all.Localities = append(all.Localities, xdsresource.Locality{ID: id, Priority: priority, Weight: uint32(s.IntN(3) + 1)})
		}
		all.Localities[at].Endpoints = append(all.Localities[at].Endpoints, e)
	}
	return all
}

// rpc is an RPC that ends at once.
func (s *storm) rpc(f *fixture) {
	d := &decision.Decision{Context: context.Background(), Extra: &decision.Extra{RPC: atHash(s.Uint64())}}
	if s.oneOf(3) {
		d.Extra.HostOverride = &httpfilter.HostOverride{Addresses: []string{addresses[s.IntN(len(addresses))]}}
	}
	result, err := f.pickWith(d)
	if err != nil {
		return
	}
	info := balancer.DoneInfo{BytesSent: true, BytesReceived: true}
	if s.oneOf(2) {
		info.Err = status.Error(codes.Unavailable, "down")
	}
	result.Done(info)
}

func (s *storm) event(f *fixture) {
	switch s.IntN(10) {
	case 0:
		f.update(cluster.Config{Cluster: backend})
	case 1:
		if s.oneOf(3) {
			f.update(cluster.Config{Err: errors.New("withdrawn")})
		}
	case 2, 3, 4:
		f.update(cluster.Config{Cluster: s.cluster(), Endpoints: s.endpoints()})
	case 5, 6:
		f.CC.Set(addresses[s.IntN(len(addresses))], []lbtest.Reach{lbtest.Up, lbtest.Refused, lbtest.Silent}[s.IntN(3)])
	case 7:
		time.Sleep(time.Duration(s.Int64N(int64(20 * time.Second))))
	default:
		for range s.IntN(20) {
			s.rpc(f)
		}
	}
	if s.oneOf(2) {
		synctest.Wait()
	}
}

// outcomes returns where RPCs of all hashes go, or their errors, once what they need is connected, and
// where RPCs of sessions do. Both addresses of an endpoint are the same to it.
func outcomes(f *fixture) map[string][]string {
	all := make(map[string][]string)
	add := func(kind string, override *httpfilter.HostOverride, hash uint64) {
		result, err := f.pickWith(&decision.Decision{
			Context: context.Background(), Extra: &decision.Extra{RPC: atHash(hash), HostOverride: override},
		})
		outcome := fmt.Sprint(err)
		if err == nil {
			if outcome = lbtest.Picked(result).Addr; outcome == second {
				outcome = addresses[0]
			}
			if override != nil && outcome != override.Addresses[0] {
				outcome = "another endpoint"
			}
			result.Done(balancer.DoneInfo{BytesSent: true, BytesReceived: true})
		}
		if !slices.Contains(all[kind], outcome) {
			all[kind] = append(all[kind], outcome)
		}
	}
	for range 5 {
		clear(all)
		for i := range uint64(300) {
			add("any", nil, i*(math.MaxUint64/300))
		}
		for _, a := range addresses {
			add("session of "+a, &httpfilter.HostOverride{Addresses: []string{a}}, 0)
		}
		synctest.Wait()
	}
	for _, list := range all {
		slices.Sort(list)
	}
	return all
}

// After anything that a control plane, the network and RPCs may do, RPCs go where they would go had
// the client just started.
func TestStormEndsLikeAFreshStart(t *testing.T) {
	t.Parallel()
	first := rand.Uint64N(1_000_000)
	for seed := first; seed < first+50; seed++ {
		t.Run(fmt.Sprint(seed), subtest(func(t *testing.T, f *fixture) {
			s := &storm{rand.New(rand.NewPCG(seed, 0)), t.Name(), load.NewStore(nil)}
			for range 40 {
				s.event(f)
			}
			for _, a := range addresses {
				f.CC.Set(a, lbtest.Up)
			}
			last := cluster.Config{Cluster: s.cluster(), Endpoints: s.endpoints()}
			last.Cluster.Subsets.OfPriority = 0 // each client has its own
			fresh := newFixture(t)
			for _, f := range []*fixture{f, fresh} {
				f.update(last)
				time.Sleep(20 * time.Minute) // Priorities and sessions have ended.
				outcomes(f)
				time.Sleep(time.Minute)
			}
			want, got := outcomes(fresh), outcomes(f)
			if last.Cluster.LBPolicy == "pick_first" { // which keeps what is connected
				for _, all := range []map[string][]string{want, got} {
					for kind, list := range all {
						all[kind] = []string{fmt.Sprint(len(list))}
					}
				}
			}
			if t.Failed() || !maps.EqualFunc(want, got, slices.Equal) {
				t.Errorf("RPCs go to %q, after a fresh start to %q, with policy %q and endpoints %+v", got, want, last.Cluster.LBPolicy, last.Endpoints.Localities)
			}
			xdstest.Equal(t, "the state", fresh.CC.State().ConnectivityState, f.CC.State().ConnectivityState)
			xdstest.Equal(t, "RPCs in flight", 0, inFlight(s.name))
			for _, r := range s.store.Take(nil) {
				for _, l := range r.Localities {
					if l.InProgress != 0 || l.Issued != l.Succeeded+l.Failed {
						t.Errorf("the load report of %q is %+v, want no RPC in flight", r.Service, l)
					}
				}
			}
			f.close()
			f.ExpectOpen("at the end")
		}))
	}
}
