package cluster_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/experimental/stats/telemetry"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// labelsOfPick returns the telemetry labels of an RPC after one pick, and its result. As with
// gRPC's own xDS client, the callback gets those of the service, then those of the cluster and the locality. The RPC is of a session, if there are addresses that it asks for.
func labelsOfPick(f *fixture, addrs ...string) (map[string]string, balancer.PickResult, error) {
	f.T.Helper()
	got := make(map[string]string)
	var calls [][]string
	ctx := telemetry.NewContextWithLabelCallback(context.Background(), func(l map[string]string) {
		maps.Copy(got, l)
		calls = append(calls, slices.Sorted(maps.Keys(l)))
	})
	d := &decision.Decision{Context: ctx}
	if len(addrs) > 0 {
		d.Extra = rpcFor(addrs...).Extra
	}
	result, err := f.pickWith(d)
	if err == nil {
		result.Done(balancer.DoneInfo{})
	}
	xdstest.Equal(f.T, "calls of the callback for one pick", [][]string{
		{"csm.service_name", "csm.service_namespace_name"}, {"grpc.lb.backend_service", "grpc.lb.locality"},
	}, calls)
	return got, result, err
}

func wantLabels(t *testing.T, got map[string]string, service, namespace, locality string) {
	t.Helper()
	want := map[string]string{
		"grpc.lb.backend_service": "backend", "grpc.lb.locality": locality,
		"csm.service_name": service, "csm.service_namespace_name": namespace,
	}
	xdstest.Equal(t, "labels", want, got)
}

// gRFC A78, "Optional xDS Locality Label" and "Per-Call Metrics"; gRFC A89, "Add
// grpc.lb.backend_service to per-call metrics".
func TestLabelsOfAnRPC(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"round_robin", "pick_first", "weighted_round_robin", xdsresource.PolicyRingHash, xdsresource.PolicyRandom} {
		t.Run(policy, subtest(func(t *testing.T, f *fixture) {
			l := at("", 0, "a:1")
			l.ID = xdsresource.LocalityID{Region: "r", Zone: `z"`, SubZone: "s"}
			l.Endpoints[0].Additional = []string{"a:2"}
			c := by(policy, "", l)
			f.update(c)
			f.CC.Pick(&decision.Decision{Context: context.Background(), Extra: &decision.Extra{RPC: new(counting)}})
			synctest.Wait()
			got, _, err := labelsOfPick(f)
			xdstest.NoError(t, err)
			wantLabels(t, got, "unknown", "unknown", `{region="r", zone="z\"", sub_zone="s"}`)

			moved, named := c, *c.Cluster
			l.ID = xdsresource.LocalityID{Region: "elsewhere"}
			named.Service = &xdsresource.Service{Name: "shop", Namespace: "prod"}
			moved.Cluster, moved.Endpoints = &named, endpoints(l)
			f.update(moved)
			f.CC.Pick(&decision.Decision{Context: context.Background(), Extra: &decision.Extra{RPC: new(counting)}})
			synctest.Wait()
			if got, _, err = labelsOfPick(f); err != nil {
				t.Fatal(err)
			}
			wantLabels(t, got, "shop", "prod", `{region="elsewhere", zone="", sub_zone=""}`)
		}))
	}
}

// gRFC A78: a policy that picks across localities has the locality of each endpoint.
func TestLabelsAcrossLocalities(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		c := by("round_robin", "", at("a", 0, "a:1"), at("b", 0, "b:1"))
		c.Cluster.AcrossLocalities = true
		f.update(c)
		seen := make(map[string]int)
		for range 4 {
			got, _, err := labelsOfPick(f)
			xdstest.NoError(t, err)
			seen[got["grpc.lb.locality"]]++
		}
		want := map[string]int{`{region="", zone="a", sub_zone=""}`: 2, `{region="", zone="b", sub_zone=""}`: 2}
		xdstest.Equal(t, "localities of picks", want, seen)
	})
}

// gRFC A89: the labels are set "each pick that the information is available, regardless of the
// pick's result". Package balancer has the other results.
func TestLabelsOfADroppedRPC(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		dropped := by("round_robin", "", at("a", 0, "a:1"))
		dropped.Cluster.Service = &xdsresource.Service{Name: "shop", Namespace: "prod"}
		dropped.Endpoints.Drops = []xdsresource.Drop{{Category: "all", PerMillion: xdsresource.Million}}
		f.update(dropped)
		got, _, err := labelsOfPick(f)
		if err == nil {
			t.Error("an RPC was not dropped")
		}
		wantLabels(t, got, "shop", "prod", "")
	})
}
