package balancer_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"

	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/experimental/stats/telemetry"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// gRFC A89, "Add grpc.lb.backend_service to per-call metrics": the labels are set "each pick that
// the information is available, regardless of the pick's result". For aggregate clusters it is that
// of the cluster that serves, or has failed last; none before that.
func TestLabelsOfPicksWithoutResult(t *testing.T) {
	t.Parallel()
	named := func(c *balancer.ClusterState) *balancer.ClusterState {
		c.Cluster.Service = &xdsresource.Service{Name: "shop", Namespace: "prod"}
		return c
	}
	broken := over(under("B", "b:1"))
	broken.Err = errors.New("a loop of clusters")
	labels := func(cluster, service, namespace string) map[string]string {
		return map[string]string{
			"grpc.lb.backend_service": cluster, "grpc.lb.locality": "",
			"csm.service_name": service, "csm.service_namespace_name": namespace,
		}
	}
	for _, tc := range []struct {
		name          string
		state         *balancer.ClusterState
		first, second map[string]string
	}{
		{"a cluster", named(serving("silent:1")), labels("c", "shop", "prod"), labels("c", "shop", "prod")},
		{"a cluster that is not resolved yet", new(balancer.ClusterState), labels("c", "unknown", "unknown"), labels("c", "unknown", "unknown")},
		{"a cluster that cannot be used", &balancer.ClusterState{Err: errors.New("no such cluster")},
			labels("c", "unknown", "unknown"), labels("c", "unknown", "unknown")},
		{"an aggregate cluster", over(under("B", "refused:1"), underlying{"C", named(serving("silent:1"))}),
			map[string]string{}, labels("C", "shop", "prod")},
		{"an aggregate cluster whose clusters all fail", over(under("B", "refused:1"), under("C", "refused:1")),
			map[string]string{}, labels("C", "unknown", "unknown")},
		{"an aggregate cluster that cannot be used", broken, map[string]string{}, map[string]string{}},
	} {
		t.Run(tc.name, subtest(func(t *testing.T, tr *tree) {
			tr.Network.Set("silent:1", lbtest.Silent)
			tr.Network.Set("refused:1", lbtest.Refused)
			tr.update(states{"c": tc.state})
			for when, want := range []map[string]string{tc.first, tc.second} {
				got := make(map[string]string)
				ctx := telemetry.NewContextWithLabelCallback(context.Background(), func(l map[string]string) { maps.Copy(got, l) })
				_, err := tr.CC.State().Picker.Pick(grpcbalancer.PickInfo{
					Ctx: &decision.Decision{Context: ctx, Version: tr.last.Version, Cluster: "c"},
				})
				if err == nil {
					t.Fatal("a pick found an endpoint")
				}
				if !maps.Equal(got, want) {
					t.Errorf("pick %d has labels %v, want %v", when+1, got, want)
				}
				synctest.Wait()
			}
		}))
	}
}
