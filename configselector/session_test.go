package configselector_test

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/configselector"
	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// binding is a filter that sends RPCs to an endpoint of a cluster.
func binding(cluster string, o *httpfilter.HostOverride) httpfilter.Instance {
	return filterOf("binding", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
		if next.RouteHas(cluster) {
			rpc.Cluster = cluster
		}
		rpc.HostOverride = o
		return next.NewStream(ctx, rpc)
	})
}

// split is a route with nearly all of its weight on one of its clusters, and
// header edits on the other.
func split() *xdsresource.Route {
	return &xdsresource.Route{Settings: &xdsresource.Settings{Action: &xdsresource.Forward{
		Clusters: []xdsresource.WeightedCluster{
			{Name: "old", Weight: 1, Headers: &xdsresource.HeaderMutations{Request: edits("edit", false, "old")}},
			{Name: "new", Weight: 1<<32 - 2},
		},
	}}}
}

// gRFC A60, "Request Side Processing": a filter can override the cluster by another one of the
// route, but not by one that is not of the route.
func TestAFilterChoosesAmongTheClustersOfTheRoute(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		for _, tc := range []struct {
			wanted, want string
			edit         []string
		}{
			{"old", "old", []string{"old"}},
			{"other", "new", nil},
			{"", "new", nil},
		} {
			o := new(httpfilter.HostOverride)
			w := newWorld(t, worldConfig{routes: []*xdsresource.Route{split()}, listener: chainOf(binding(tc.wanted, o))})
			if r := w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"}); r.err != nil {
				t.Fatal(r.err)
			}
			if got := o.Cluster(); got != tc.want {
				t.Errorf("a filter that wants cluster %q gets %q, want %q", tc.wanted, got, tc.want)
			}
			if md := w.seen()[0].md; !slices.Equal(md["edit"], tc.edit) {
				t.Errorf("cluster %q: the edits of the cluster gave %q, want %q", tc.want, md["edit"], tc.edit)
			}
		}
	})
}

func TestTheDecisionCarriesTheHostOverride(t *testing.T) {
	t.Parallel()
	o := &httpfilter.HostOverride{Addresses: []string{"10.0.0.1:80"}}
	w := newWorld(t, worldConfig{listener: chainOf(binding("c", o))})
	given := mustUnary(t, t.Context(), w.s, "/s/m")
	if d := decision.FromContext(given); d.Extra.HostOverride != o || d.Extra.Pinned {
		t.Errorf("the picker is given %+v", d.Extra)
	}
}

// gRFC A60, "Cluster Lifetime Problem": an RPC does not fail if its session's cluster is removed
// while it waits for an endpoint.
func TestASessionOutlivesItsCluster(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		override *httpfilter.HostOverride
		after    *xdsresource.Route
		want     string // empty: UNAVAILABLE
	}{
		{"the cluster is there", new(httpfilter.HostOverride), split(), "old"},
		{"the cluster was removed", new(httpfilter.HostOverride), toC(), "c"},
		{"the cluster was removed, and no session chose it", nil, toC(), ""},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			w := newWorld(t, worldConfig{routes: []*xdsresource.Route{split()}, listener: chainOf(binding("old", tc.override))})
			given := mustUnary(t, t.Context(), w.s, "/s/m")
			l := chainOf()
			next := w.ch.NewSelector(configselector.Config{Version: 2, Listener: &l, VirtualHost: &xdsresource.VirtualHost{Routes: []*xdsresource.Route{tc.after}}})
			got, err := next.Reselect(decision.FromContext(given))
			if tc.want == "" {
				if status.Code(err) != codes.Unavailable {
					t.Errorf("Reselect: %q, %v", got, err)
				}
				return
			}
			if err != nil || got != tc.want || tc.override.Cluster() != tc.want {
				t.Errorf("Reselect: %q, %v, and the filter sees %q; want %q", got, err, tc.override.Cluster(), tc.want)
			}
		})
	}
}
