package publish_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

func override(name, parameters string) string {
	return strings.Replace(resource(name, parameters), "kind: Resource", "kind: Resource\noverride: true", 1)
}

// An override hides what services and policies make under its name, all variants of it, until it is deleted.
// What changes beneath it is not sent.
func TestOverride(t *testing.T) {
	t.Parallel()
	s := newSite(t, "mesh")
	consumer := policy("consumer", "{kind: MeshService, name: frontend}", "v2")
	for _, step := range []struct {
		name, file, text string
		// changed and removed are those of the summary.
		changed, removed int
		// plain and named are the clusters of frontend and of batch.
		plain, named [2]string
	}{
		{"a service", "services.yaml", services, 16, 0, [2]string{"backend", "backend"}, [2]string{"backend", "backend"}},
		{"variants", "consumer.yaml", consumer, 8, 2, [2]string{"backend;version=v2", "backend"}, [2]string{"backend;version=v2", "backend"}},
		{"an override", "override.yaml", override("backend", ""), 1, 2, [2]string{"written", "written"}, [2]string{"backend;version=v2", "backend"}},
		{"of the other name too", "named.yaml", override(named, ""), 1, 2, [2]string{"written", "written"}, [2]string{"written", "written"}},
		{"a change beneath, but for clusters and endpoints", "consumer.yaml", policy("consumer", "{kind: MeshService, name: frontend}", "v1"),
			4, 4, [2]string{"written", "written"}, [2]string{"written", "written"}},
		{"a change of the override", "override.yaml", strings.Replace(override("backend", ""), "cluster: written", "cluster: again", 1),
			1, 0, [2]string{"again", "again"}, [2]string{"written", "written"}},
		{"the override is deleted", "override.yaml", "", 2, 1, [2]string{"backend;version=v1", "backend"}, [2]string{"written", "written"}},
		{"the policy beneath is deleted", "consumer.yaml", "", 1, 6, [2]string{"backend", "backend"}, [2]string{"written", "written"}},
		{"with parameters", "override.yaml", override("backend", "version: v7"), 1, 1, [2]string{"nothing", "nothing"}, [2]string{"written", "written"}},
		{"with parameters and without", "all.yaml", resource("backend", ""), 1, 0, [2]string{"written", "written"}, [2]string{"written", "written"}},
		{"the service beneath is deleted", "services.yaml", "", 0, 14, [2]string{"written", "written"}, [2]string{"written", "written"}},
	} {
		summary := s.change(step.file, step.text)
		if summary.Changed != step.changed || summary.Removed != step.removed {
			t.Errorf("%s: %d changed and %d removed, want %d and %d", step.name, summary.Changed, summary.Removed, step.changed, step.removed)
		}
		for i, client := range []string{"frontend", "batch"} {
			s.routes(step.name, "backend", node(client, "v1"), step.plain[i])
			if got := s.cluster(named, node(client, "v1")); got[strings.LastIndexByte(got, '/')+1:] != step.named[i] {
				t.Errorf("%s: %s gets %s under the authority, want %s", step.name, client, got, step.named[i])
			}
		}
		nothing := 0
		for _, r := range summary.Reports {
			if strings.Contains(r.String(), "there is nothing to replace") {
				nothing++
			}
		}
		if gone := step.file == "services.yaml" && step.text == ""; (nothing == 2) != gone || (nothing == 0) == gone {
			t.Errorf("%s: %v", step.name, summary.Reports)
		}
	}
}

// A resource that would hide a generated one by mistake is a fault, which names both places.
func TestAConflictNamesBothPlaces(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ documents, resource, want string }{
		"a service": {services, resource("frontend", ""), "a service has this resource already, frontend at DIR/a.yaml:8; write override: true to replace it"},
		"a missing service": {
			strings.Replace(policy("p", "{kind: Mesh}", "v1"), "MeshService, name: backend", "MeshService, name: absent", 1), resource("absent", ""),
			"absent, which policy p names at DIR/a.yaml:2",
		},
		"the Listener of a server": {
			"kind: Service\nname: s\nendpoints: [{address: \"10.0.0.1:80\"}]\ntls: {mode: mutual}\n",
			"kind: Resource\nresource: {\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener, name: \"grpc/server/10.0.0.1:80\"}\n",
			"s at DIR/a.yaml:1",
		},
	} {
		s := newSite(t, "")
		s.write("a.yaml", test.documents, "b.yaml", test.resource)
		_, err := s.tryPublish()
		cmdtest.ErrorHas(t, name, err, strings.ReplaceAll(test.want, "DIR", s.dir), s.dir+"/b.yaml:")
		s.change("b.yaml", strings.Replace(test.resource, "kind: Resource", "kind: Resource\noverride: true", 1))
	}
}

// dump returns everything in the store.
func (s *site) dump() map[string]string {
	all := make(map[string]string)
	for _, typeURL := range []string{meshroute.ListenerType, meshroute.RouteConfigurationType, meshroute.ClusterType, meshroute.EndpointsType} {
		for _, r := range s.store.Resources(typeURL) {
			all[fmt.Sprintf("%s %s %s", typeURL, r.Name(), r.Parameters())] = r.Any().String()
		}
		for _, r := range s.publisher.Errors(typeURL) {
			_, st := s.store.Choose(typeURL, r.Name, dynparam.Constraints{})
			all[typeURL+" "+r.Name+" error"] = st.String()
		}
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
	s := newSite(t, "mesh")
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
		fresh := &site{t: t, dir: s.dir, reader: s.reader, store: newSite(t, "").store}
		fresh.publisher = publish.New(fresh.store, publish.Options{Authority: "mesh"}, publish.Streams{})
		fresh.change()
		if diff := cmp.Diff(fresh.dump(), s.dump()); diff != "" {
			t.Fatalf("after %d changes (-rebuilt +updated):\n%s", i+1, diff)
		}
	}
}

// A resource whose name the store does not take is a fault with its place, so that a replica can leave it out.
func TestImpossibleName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"*", "xdstp://mesh/envoy.config.cluster.v3.Cluster/all/*"} {
		s := newSite(t, "")
		s.write("services.yaml", services, "all.yaml", resource("'"+name+"'", ""))
		var faults *document.Faults
		if _, err := s.tryPublish(); !errors.As(err, &faults) || filepath.Base(faults.List[0].File) != "all.yaml" {
			t.Errorf("%s: got error %v, want a fault in all.yaml", name, err)
		}
	}
}
