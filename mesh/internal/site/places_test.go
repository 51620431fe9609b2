package site

import (
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// What is served names files relative to the folder, and no path of the machine; without sources it
// names none.
func TestServedResourcesNameFilesOfTheFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	small.write(t, dir)
	for _, noSources := range []bool{false, true} {
		p := quietPlane(Options{Dir: dir, NoSources: noSources})
		xdstest.NoError(t, p.reload.load(t.Context()))
		for typeURL, want := range map[string]string{
			meshroute.ListenerType: "service-3.yaml:1", meshroute.ClusterType: "service-3.yaml:1", meshroute.EndpointsType: "service-3.yaml:5",
			meshroute.RouteConfigurationType: "policy-3.yaml:9",
		} {
			names := 0
			for _, r := range p.store.Resources(typeURL) {
				raw := string(r.Any().GetValue())
				if strings.Contains(raw, dir) {
					t.Errorf("%s names the path of the folder: %q", r.Name(), raw)
				}
				if strings.Contains(raw, want) {
					names++
				}
				if noSources && strings.Contains(raw, provenance.Key) {
					t.Errorf("%s has sources: %q", r.Name(), raw)
				}
			}
			if (names > 0) == noSources {
				t.Errorf("without sources %t, %d resources of type %s have %s", noSources, names, typeURL, want)
			}
		}
	}
}
