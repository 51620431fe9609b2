package site_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder/foldertest"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/meshdiff"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/site"
	"github.com/dynxds/dynxds/internal/xdstest"
)

const comparedServices = foldertest.Services

// policyFor returns a policy for clients behind other documents, with rules for backend.
func policyFor(name, clients, rules string) string {
	return "---" + foldertest.Policy(name, clients, rules)
}

// to is a rule for a prefix, which sends to the two versions with these weights.
func to(prefix, v1, v2 string) string {
	return `
    - matches: [{path: {type: Prefix, value: ` + prefix + `}}]
      backendRefs:
      - {kind: MeshServiceSubset, name: backend, tags: {version: v1}, weight: ` + v1 + `}
      - {kind: MeshServiceSubset, name: backend, tags: {version: v2}, weight: ` + v2 + `}
`
}

func TestCompare(t *testing.T) {
	t.Parallel()
	const (
		everyone = "{kind: Mesh}"
		frontend = "{kind: MeshService, name: frontend}"
		v2       = "{kind: MeshServiceSubset, name: frontend, tags: {version: v2}}"
		slow     = `
---
kind: Resource
dynamicParameters: {env: %s}
resource: {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: db, connect_timeout: 1s}
`
	)
	owner := policyFor("owner", everyone, to("/", "1", "0"))
	tests := []struct{ name, before, after, want string }{
		{"nothing", comparedServices + owner, comparedServices + owner, ""},
		{"only places", comparedServices + owner, "# more lines\n" + comparedServices + owner, ""},
		{"another split for all", comparedServices + owner, comparedServices + policyFor("owner", everyone, to("/", "95", "5")), `
~ RouteConfiguration backend: all clients
    ~ route prefix "/": clusters: "backend;version=v1" 100% → "backend;version=v1" 95%, "backend;version=v2" 5%
`},
		{"a policy for one service", comparedServices + owner, comparedServices + owner + policyFor("mine", frontend, to("/a", "0", "1")), `
~ RouteConfiguration backend: clients with {service=frontend}
    + route path "/a": to "backend;version=v2" 100%
    + route prefix "/a/": to "backend;version=v2" 100%
`},
		{"a new tag changes nothing for others",
			comparedServices + owner + policyFor("mine", frontend, to("/", "1", "1")),
			comparedServices + owner + policyFor("mine", frontend, to("/", "1", "1")) + policyFor("v2", v2, to("/", "0", "1")), `
~ RouteConfiguration backend: clients with {service=frontend,version=v2}
    ~ route prefix "/": clusters: "backend;version=v1" 50%, "backend;version=v2" 50% → "backend;version=v2" 100%
`},
		{"what only dynxds can be told", comparedServices, comparedServices + policyFor("methods", everyone, `
    - matches: [{method: POST, path: {type: Exact, value: /s/m}}]
      backendRefs: [{kind: MeshServiceSubset, name: backend, tags: {version: v2}}]
`), `
~ RouteConfiguration backend: all other clients
    + route path "/s/m" and header :method = "POST": to "backend;version=v2"
~ RouteConfiguration backend: gRPC clients other than those of dynxds
    + route path "/s/m": to "backend;version=v2"
+ Cluster backend;version=v2: all clients
+ ClusterLoadAssignment backend;version=v2: all clients
    + no locality, priority 0: endpoint 10.0.0.2:80: {"health_status":"HEALTHY","load_balancing_weight":1}
`},
		{"endpoints", comparedServices, strings.Replace(comparedServices, "10.0.0.2:80", "10.0.0.3:80", 1), `
~ ClusterLoadAssignment backend: all clients
    + no locality, priority 0: endpoint 10.0.0.3:80: {"health_status":"HEALTHY","load_balancing_weight":1}
    - no locality, priority 0: endpoint 10.0.0.2:80: {"health_status":"HEALTHY","load_balancing_weight":1}
`},
		{"a service more", comparedServices, comparedServices + "---\nkind: Service\nname: new\nendpoints: [{address: '10.0.0.9:80'}]\n", `
+ Listener new: all clients
+ RouteConfiguration new: all clients
    + route prefix "/": to "new"
+ Cluster new: all clients
+ ClusterLoadAssignment new: all clients
    + no locality, priority 0: endpoint 10.0.0.9:80: {"health_status":"HEALTHY","load_balancing_weight":1}
`},
		{"a variant of a resource", comparedServices, comparedServices + strings.Replace(slow, "%s", "prod", 1), `
+ Cluster db: all clients
`},
		{"a resource in the place of a generated one", comparedServices, comparedServices + `
---
kind: Resource
override: true
resource: {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: frontend, type: EDS, eds_cluster_config: {eds_config: {ads: {}}}}
`, `
~ Cluster frontend: all clients
    - eds_cluster_config.eds_config.resource_api_version: V3
    - eds_cluster_config.service_name: "frontend"
    - http2_protocol_options: {}
`},
		{"another variant of a resource", comparedServices + strings.Replace(slow, "%s", "prod", 1),
			comparedServices + strings.Replace(slow, "%s", "prod", 1) + strings.Replace(strings.Replace(slow, "1s", "2s", 1), "%s", "test", 1), `
+ Cluster db: clients with {env=test}
`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			changes, notes, err := site.Compare(parse(t, test.before), parse(t, test.after))
			if err != nil || len(notes) > 0 {
				t.Fatalf("got notes %q and error %v, want neither", notes, err)
			}
			xdstest.Equal(t, "the changes", strings.TrimPrefix(test.want, "\n"), meshdiff.Text(changes))
		})
	}
}

// Of a resource for so many kinds of clients that not all are compared, that is said.
func TestCompareOfTooManyKinds(t *testing.T) {
	t.Parallel()
	// variants are those of a Cluster, by a tag.
	variants := func(tag string, timeout string) string {
		var b strings.Builder
		for i := range 100 {
			fmt.Fprintf(&b, "---\nkind: Resource\ndynamicParameters: {%s: v%d}\n"+
				`resource: {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: db, connect_timeout: %s}`+"\n", tag, i, timeout)
		}
		return b.String()
	}
	changes, notes, err := site.Compare(parse(t, variants("a", "1s")), parse(t, variants("b", "2s")))
	want := []string{"Cluster db: compared for 8192 kinds of clients; more kinds may be affected"}
	if diff := cmp.Diff(want, notes); diff != "" || err != nil || len(changes) == 0 {
		t.Errorf("got %d changes and error %v; notes (-want +got):\n%s", len(changes), err, diff)
	}
}

func parse(t *testing.T, text string) *folder.Content {
	t.Helper()
	content, err := folder.NewJoiner("dir").Join([]*folder.File{folder.Parse("dir/mesh.yaml", []byte(text))})
	xdstest.NoError(t, err)
	return content
}
