package cluster_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func (f *fixture) inspect() (d inspect.Cluster) {
	synctest.Wait()
	f.Loop.Do(func() { d = f.Policy.Inspect() })
	return d
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
					{Addresses: []string{"a:2", "a:4"}, Health: "UNKNOWN", Weight: 1, State: inspect.Ready, Since: now, Connected: "a:4",
						Error: "dial a:2: connection refused", ErrorTime: now},
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
