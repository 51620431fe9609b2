package site_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/meshroute"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

// A service is deleted in the change that moves the routes away from it, or right after. No RPC
// fails of a client that applies deletions at once, and its Clusters stay with clients that
// still subscribe to them.
func TestAServiceIsDeletedWhileRoutesMoveAway(t *testing.T) {
	t.Parallel()
	eachKindOfClient(t, func(t *testing.T, kind clientKind) {
		backends := map[string]*testutils.Backend{}
		service := func(name string) string {
			if backends[name] == nil {
				backends[name] = testutils.StartBackend(t, name)
			}
			return fmt.Sprintf("kind: Service\nname: %s\nendpoints: [{address: %q}]\n", name, backends[name].Addr())
		}
		// One file, replaced as a whole: the control plane may look at any time.
		mesh := func(to string, services ...string) string {
			text := service("backend") + fmt.Sprintf(`---
kind: MeshHTTPRoute
metadata: {name: move}
spec:
  targetRef: {kind: Mesh}
  to:
  - targetRef: {kind: MeshService, name: backend}
    rules:
    - backendRefs: [{kind: MeshService, name: %s, weight: 1}]
`, to)
			for _, name := range services {
				text += "---\n" + service(name)
			}
			return text
		}
		r := start(t, kind.authority, map[string]string{"mesh.yaml": mesh("s0", "s0")},
			func(o *site.Options) { o.RemovalDelay = time.Hour })
		client := r.dial(kind, "frontend", "v1")
		client.reaches("s0")
		clusters := r.clusters()
		first := clusters()
		for i := range 6 {
			last, next := fmt.Sprintf("s%d", i), fmt.Sprintf("s%d", i+1)
			if i%2 == 0 {
				r.write("mesh.yaml", mesh(next, last, next))
				r.reload()
			}
			r.write("mesh.yaml", mesh(next, next))
			r.reload()
			client.reaches(next)
			for _, name := range first {
				if now := clusters(); !slices.Contains(now, name) {
					t.Fatalf("the Clusters are %q, without %q, which a client still has", now, name)
				}
			}
		}
	})
}

// clusters returns a function that asks for all Clusters, on one stream, and returns their names.
func (r *running) clusters() func() []string {
	r.t.Helper()
	stream, probes := cmdtest.SotW(r.t, cmdtest.Dial(r.t, r.addr)), 0
	return func() []string {
		r.t.Helper()
		// A name that is new makes the server answer with all that there is.
		probes++
		probe := fmt.Sprintf("probe-%d", probes)
		stream.Send(&discoverypb.DiscoveryRequest{
			Node: &corepb.Node{Id: "watcher"}, TypeUrl: meshroute.ClusterType, ResourceNames: []string{"*", probe},
		})
		for {
			response := stream.Recv()
			if !slices.ContainsFunc(response.GetResourceErrors(), func(e *discoverypb.ResourceError) bool {
				return e.GetResourceName().GetName() == probe
			}) {
				continue
			}
			var names []string
			for _, packed := range response.GetResources() {
				cluster := new(clusterpb.Cluster)
				xdstest.NoError(r.t, packed.UnmarshalTo(cluster))
				names = append(names, cluster.GetName())
			}
			return names
		}
	}
}
