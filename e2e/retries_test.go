package e2e_test

import (
	"slices"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/testutils"
)

// retriedRoute is a route to the cluster with the policy, which gets a backoff of 1 ms.
func retriedRoute(cluster, policy string) *routepb.Route {
	return with(toCluster(cluster), `route { retry_policy { %s retry_back_off { base_interval { nanos: 1000000 } } } }`, policy)
}

// Envoy, RetryPolicy.retry_host_predicate, previous_hosts: a retry goes to a backend that the RPC
// was not sent to yet.
func TestRetriesAvoidPreviousHostsEndToEnd(t *testing.T) {
	t.Parallel()
	inOneWay(t, "attempts are spread over the same endpoints")
	m := newMesh(t)
	all := backends(t, "b0", "b1", "b2")
	m.set(chain(service, retriedRoute("c", `retry_on: "unavailable" num_retries { value: 2 } host_selection_retry_max_attempts: 20
		retry_host_predicate { name: "previous" typed_config {
			[type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate] {}
		} }`)), clusterOf("c", all...))
	cc := m.dial("xds:///" + service)
	reachAll(t, cc, all...)
	for _, b := range all {
		b.Fail(testutils.TrailersOnly(status.Error(codes.Unavailable, "not here")))
	}
	eachKind(t, func(t *testing.T, k kind) {
		for range 20 {
			var picks []string
			ctx := dynxds.WithTrace(testutils.Context(t), &dynxds.Trace{Picked: func(p dynxds.TracePick) { picks = append(picks, p.Endpoint) }})
			checkStatus(t, callFor(ctx, cc, k).err, codes.Unavailable, "not here")
			slices.Sort(picks)
			if n := len(slices.Compact(picks)); n != 3 {
				t.Fatalf("the attempts went to %d of the 3 backends", n)
			}
		}
	})
}
