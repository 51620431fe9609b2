package cluster_test

import (
	"context"
	"math"
	"testing"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// sticky is a cluster whose sessions go to endpoints of the given statuses. Its
// limit is beyond reach, as the tests do not end all RPCs.
func sticky(statuses xdsresource.Set[xdsresource.HealthStatus], localities ...xdsresource.Locality) cluster.Config {
	c := *backend
	c.MaxRequests = math.MaxUint32
	c.Sessions = xdsresource.Sessions{Statuses: statuses, IdleTimeout: time.Minute}
	return cluster.Config{Cluster: &c, Endpoints: endpoints(localities...)}
}

var (
	healthy  = xdsresource.SetOf(xdsresource.HealthUnknown, xdsresource.HealthHealthy)
	draining = xdsresource.SetOf(xdsresource.HealthDraining)
)

// rpcFor is an RPC of a session that asks for the addresses.
func rpcFor(addrs ...string) *decision.Decision {
	return &decision.Decision{Context: context.Background(), Extra: &decision.Extra{HostOverride: &httpfilter.HostOverride{Addresses: addrs}}}
}

func (f *fixture) pickWith(d *decision.Decision) (balancer.PickResult, error) {
	return f.CC.State().Picker.Pick(balancer.PickInfo{Ctx: d})
}

// An endpoint goes after an RPC has asked for it, and before it is connected.
func TestEndpointOfASessionGoes(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.update(sticky(healthy, at("a", 0, "a:1"), at("c", 1, "c:1", "e:1")))
		f.Loop.Do(func() {
			if _, err := f.pickWith(rpcFor("e:1")); err != balancer.ErrNoSubConnAvailable {
				t.Errorf("picked for e: %v", err)
			}
			gone := sticky(healthy, at("a", 0, "a:1"))
			f.policy.Update(&gone)
		})
		f.ExpectOpen("e is gone", "a:1")
		xdstest.Equal(t, "connections to e:1", 0, f.CC.Made("e:1"))
	})
}
