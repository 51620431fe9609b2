package cluster_test

import (
	"context"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/traffic"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// limited is a cluster of a name of its own, as the counters are the process's.
func limited(service string, limit uint32) cluster.Config {
	return cluster.Config{
		Cluster:   &xdsresource.Cluster{Name: "backend", EDSServiceName: service, LBPolicy: "round_robin", Limits: xdsresource.Limits{MaxRequests: limit}},
		Endpoints: endpoints(at("a", 0, "a:1")),
	}
}

func inFlight(service string) int64 {
	return traffic.Use(traffic.Key{Cluster: "backend", Service: service}).InFlight()
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
				xdstest.Equal(t, "RPCs in flight", 1, inFlight(t.Name()))
				if _, err := older.Picker.Pick(info); status.Code(err) != codes.Unavailable {
					t.Errorf("an RPC over the limit ended with %v", err)
				}
				if result.Done != nil {
					result.Done(balancer.DoneInfo{})
				}
				xdstest.Equal(t, "RPCs in flight at the end", 0, inFlight(t.Name()))
			})
		})
	}
}
