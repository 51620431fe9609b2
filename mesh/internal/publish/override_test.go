package publish_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

func override(name, parameters string) string {
	return strings.Replace(resource(name, parameters), "kind: Resource", "kind: Resource\noverride: true", 1)
}

// dump returns everything in the store.
func (s *site) dump() map[string]string {
	all := make(map[string]string)
	for _, typeURL := range []string{meshroute.ListenerType, meshroute.RouteConfigurationType, meshroute.ClusterType, meshroute.EndpointsType} {
		for _, r := range s.store.Resources(typeURL) {
			all[fmt.Sprintf("%s %s %s", typeURL, r.Name(), r.Parameters())] = r.Any().String()
		}
	}
	for _, r := range s.publisher.Errors() {
		_, st := s.store.Choose(r.TypeURL, r.Name, dynparam.Constraints{})
		all[r.TypeURL+" "+r.Name+" error"] = st.String()
	}
	return all
}

// After random changes the store has what a new one has that is filled from the same folder.
func TestUpdatesAreEqualToARebuild(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	oneOf := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	target := func() string {
		return oneOf("{kind: Mesh}", "{kind: MeshService, name: frontend}", "{kind: MeshSubset, tags: {version: v1}}")
	}
	s := newSite(t, publish.Options{Authority: "mesh"})
	for i := range 200 {
		switch file := oneOf("services", "policy-1", "policy-2", "routes", "named", "cluster"); file {
		case "services":
			s.write("services.yaml", oneOf("", services, strings.Replace(services, "10.0.0.1", "10.0.0.9", 1), "kind: Service\nname: frontend\n"))
		case "routes", "named":
			name := map[string]string{"routes": "backend", "named": named}[file]
			changed := strings.Replace(override(name, ""), "cluster: written", "cluster: again", 1)
			s.write(file+".yaml", oneOf("", override(name, ""), changed, override(name, "version: v1")+"---\n"+resource("'"+name+"'", ""), override(name, "version: v2")))
		case "cluster":
			s.write("cluster.yaml", oneOf("", `{kind: Resource, override: true, resource: {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: backend;version=v1}}`))
		default:
			s.write(file+".yaml", oneOf("", policy(file, target(), oneOf("v1", "v2", "v3")), strings.ReplaceAll(policy(file, target(), "v1"), "name: backend", "name: absent")))
		}
		s.change()
		fresh := newSite(t, publish.Options{Authority: "mesh"})
		fresh.files = s.files
		fresh.change()
		if diff := cmp.Diff(fresh.dump(), s.dump()); diff != "" {
			t.Fatalf("after %d changes (-rebuilt +updated):\n%s", i+1, diff)
		}
	}
}
