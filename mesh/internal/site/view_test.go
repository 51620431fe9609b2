package site_test

import (
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// folderOf is a folder with one file.
func folderOf(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	cmdtest.Write(t, dir, "mesh.yaml", text)
	return dir
}

// What is served has no field that a client ignores, and no extension that tools cannot print.
func TestNothingServedIsIgnored(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, `
kind: Service
name: echo
endpoints:
- {address: "10.0.0.1:80", tags: {version: v1}, locality: {zone: b}, weight: 3, hostname: one}
- {address: "10.0.0.2:80", priority: 2, health: Draining}
---
kind: MeshHTTPRoute
name: split
spec:
  to:
  - targetRef: {kind: MeshService, name: echo}
    rules:
    - matches: [{path: {prefix: /p.S}, headers: [{name: a, value: b}, {name: c, type: Prefix, value: d}, {name: e, type: RegularExpression, value: f}]}]
      filters: [{requestHeaderModifier: {set: [{name: x, value: y}]}}]
      backendRefs: [{kind: MeshServiceSubset, name: echo, tags: {version: v1}, weight: 9}, {kind: MeshService, name: echo, weight: 1}]
`)
	for _, authority := range []string{"", "mesh"} {
		items, err := site.Resources(site.View{Dir: dir, Authority: authority})
		xdstest.NoError(t, err)
		if len(items) != 6 {
			t.Errorf("%d resources are served, want a Listener, routes, and two Clusters with their endpoints", len(items))
		}
		for _, item := range items {
			packed := item.Resource.Any()
			ignored, err := xdsresource.IgnoredFields(packed)
			if err != nil || len(ignored) > 0 {
				t.Errorf("of %s clients ignore %v, error %v", item.Name, ignored, err)
			}
			if m, err := packed.UnmarshalNew(); err != nil {
				t.Error(err)
			} else if cluster, ok := m.(*clusterpb.Cluster); ok && len(cluster.GetTypedExtensionProtocolOptions()) > 0 {
				t.Errorf("the Cluster %s has %v", item.Name, cluster.GetTypedExtensionProtocolOptions())
			}
		}
	}
}

// A channel to a service that is left out gets nothing.
func TestServiceThatIsLeftOut(t *testing.T) {
	t.Parallel()
	content := &folder.Content{Separate: true, Services: []*meshroute.Service{{Name: "a", ExternalName: "no port"}, {Name: "b"}}}
	for service, want := range map[string]int{"": 4, "a": 0, "b": 4} {
		items, err := site.Resources(site.View{Content: content, Service: service})
		xdstest.NoError(t, err)
		if len(items) != want {
			t.Errorf("a channel to %q gets %d resources, want %d", service, len(items), want)
		}
	}
}
