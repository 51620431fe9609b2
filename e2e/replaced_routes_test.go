package e2e_test

import (
	"fmt"
	"slices"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// A control plane changes the routes again and again, and answers for none of the clusters that they add: the client asks for
// the clusters of the routes in use and of the newest ones, keeps nothing of the others, and asks for a cluster that all of
// them name without a break. The newest routes are used once their clusters are there. The test is not parallel to others, as
// it measures the process. A client that kept the clusters would grow by 57 MB and more; other tests leave up to 5 MB behind.
func TestReplacedRoutesLeaveNothingBehind(t *testing.T) {
	everyWay(t)
	directly(t, "a relay stays subscribed for a while")
	const versions, clusters, grows = 300, 100, 20 << 20
	overLinksInTurn(t, func(t *testing.T) {
		m := newMesh(t)
		m.keepSilent()
		m.Keep(20)
		before, after := testutils.StartBackend(t, "before"), testutils.StartBackend(t, "after")
		m.serve(service, "cluster", before)
		cc := m.dial("xds:///" + service)
		l := loadOn(t, cc, before)
		ctx := testutils.Context(t)
		name := func(version, i int) string { return fmt.Sprintf("cluster-%d-of-version-%d", i, version) }
		asked := map[string]bool{}
		replace := func(version int) {
			routes := []*routepb.Route{xdsmsg.PathRoute("/elsewhere", "kept")}
			for i := range clusters {
				routes = append(routes, xdsmsg.PathRoute(fmt.Sprint("/", i), name(version, i)))
			}
			m.set(xdsmsg.RouteConfig(service, service, append(routes, toCluster(name(version, 0)))...))
			for !asked[name(version, 0)] {
				r := m.MustWait(ctx, t, xdstest.OfType(xdsmsg.ClusterType))
				if !r.Delta && r.Names != nil {
					clear(asked)
				}
				for _, name := range slices.Concat(r.Names, r.Subscribe) {
					asked[name] = true
				}
				for _, name := range r.Unsubscribe {
					delete(asked, name)
				}
				if slices.Contains(r.Unsubscribe, "kept") || len(asked) > 2*clusters+2 || version > 0 && !asked["kept"] {
					t.Fatalf("version %d: %d clusters are asked for: %v", version, len(asked), r)
				}
			}
		}
		replace(0)
		size := heapSize()
		for version := range versions {
			replace(version + 1)
		}
		if grown := heapSize() - size; grown > grows {
			t.Errorf("the heap has grown by %d bytes", grown)
		}
		l.await(t, before)
		newest := []any{clusterOf("kept", before)}
		for i := range clusters {
			newest = append(newest, clusterOf(name(versions, i), after))
		}
		m.set(newest...)
		l.await(t, after)
		l.stop(t)
	})
}
