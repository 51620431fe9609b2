package balancer_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// A trace gets each pick that succeeds or fails, but none that waits.
func TestTraceOfPicks(t *testing.T) {
	test(t, func(t *testing.T, tr *tree) {
		var picks []rpctrace.Pick
		pick := func(version uint64, cluster string) error {
			picks = nil
			trace := rpctrace.FromContext(rpctrace.With(context.Background(), &rpctrace.Trace{
				Picked: func(p rpctrace.Pick) { picks = append(picks, p) },
			}))
			d := &decision.Decision{Context: context.Background(), Version: version, Cluster: cluster, Extra: &decision.Extra{RPC: hash(7), Trace: trace}}
			_, err := tr.CC.Pick(d)
			return err
		}
		expect := func(when string, err error, want ...rpctrace.Pick) {
			t.Helper()
			if !slices.Equal(picks, want) {
				t.Errorf("%s (%v): the trace has %+v, want %+v", when, err, picks, want)
			}
		}

		two := serving("first")
		two.Endpoints.Localities = []xdsresource.Locality{
			{ID: xdsresource.LocalityID{Region: "r", Zone: "z", SubZone: "s"}, Weight: 1, Endpoints: []xdsresource.Endpoint{{Address: "first", Weight: 1}}},
			{ID: xdsresource.LocalityID{Zone: "other"}, Priority: 1, Weight: 1, Endpoints: []xdsresource.Endpoint{
				{Address: "second", Additional: []string{"third"}, Weight: 1}}},
		}
		tr.Network.Set("gone", lbtest.Refused)
		dropping := serving("first")
		dropping.Endpoints.Drops = []xdsresource.Drop{{Category: "all", PerMillion: xdsresource.Million}}
		limited := serving("first")
		limited.Cluster.MaxRequests = 0
		clusters := states{"c": two, "gone": serving("gone"), "dropping": dropping, "limited": limited, "broken": {Err: errors.New("no such Cluster")}, "aggregate": over(under("member", "first"))}
		tr.update(clusters, func(s *balancer.State) { s.Default = []string{"c"} })
		for name := range clusters {
			err := pick(1, name)
			if name != "c" && err != grpcbalancer.ErrNoSubConnAvailable {
				t.Errorf("the first pick of %q: %v", name, err)
			}
			if err == grpcbalancer.ErrNoSubConnAvailable {
				expect("waiting", err)
			}
		}
		synctest.Wait()

		err := pick(1, "c")
		expect("endpoint", err, rpctrace.Pick{Cluster: "c", Region: "r", Zone: "z", SubZone: "s", Endpoint: "first"})
		err = pick(1, "aggregate")
		expect("member of an aggregate cluster", err, rpctrace.Pick{Cluster: "member", Endpoint: "first"})
		for cluster, reason := range map[string]rpctrace.Reason{
			"gone": rpctrace.Unreachable, "dropping": rpctrace.Dropped, "limited": rpctrace.MaxRequests,
			"broken": rpctrace.Unusable, "unknown": rpctrace.NoCluster,
		} {
			err := pick(1, cluster)
			if err == nil {
				t.Fatalf("a pick of %q succeeds", cluster)
			}
			expect(cluster, err, rpctrace.Pick{Cluster: cluster, Reason: reason, Err: err})
		}
		err = pick(2, "unknown")
		expect("cluster of a later version", err)

		reselected := status.Error(codes.Unavailable, "no route")
		tr.update(nil, reselect("", reselected))
		err = pick(1, "unknown")
		expect("no route any more", err, rpctrace.Pick{Cluster: "unknown", Reason: rpctrace.NoCluster, Err: reselected})
		tr.update(nil, reselect("c", nil))
		err = pick(1, "unknown")
		expect("routed again", err, rpctrace.Pick{Cluster: "c", Region: "r", Zone: "z", SubZone: "s", Endpoint: "first"})

		// The place of a connection that stays is that in the endpoints of now.
		moved := *two
		moved.Endpoints = &xdsresource.Endpoints{Name: two.Endpoints.Name, Localities: []xdsresource.Locality{
			{ID: xdsresource.LocalityID{Zone: "new"}, Weight: 1, Endpoints: two.Endpoints.Localities[0].Endpoints}}}
		clusters["c"] = &moved
		tr.update(clusters)
		synctest.Wait()
		err = pick(1, "c")
		expect("another locality", err, rpctrace.Pick{Cluster: "c", Zone: "new", Endpoint: "first"})

		tr.update(nil, func(s *balancer.State) { s.Err = errors.New("no Listener") })
		err = pick(1, "unknown")
		expect("no configuration", err, rpctrace.Pick{Cluster: "unknown", Reason: rpctrace.NoConfig, Err: err})
	})
}
