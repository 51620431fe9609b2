package site_test

import (
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/folder/foldertest"
	"github.com/dynxds/dynxds/mesh/internal/site"
)

// to is a rule for a prefix, which sends to the two versions with these weights.
func to(prefix, v1, v2 string) string {
	return `
    - matches: [{path: {type: Prefix, value: ` + prefix + `}}]
      backendRefs:
      - {kind: MeshServiceSubset, name: backend, tags: {version: v1}, weight: ` + v1 + `}
      - {kind: MeshServiceSubset, name: backend, tags: {version: v2}, weight: ` + v2 + `}
`
}

func TestDiff(t *testing.T) {
	t.Parallel()
	const (
		everyone = "{kind: Mesh}"
		frontend = "{kind: MeshService, name: frontend}"
		db       = `
---
kind: Resource
dynamicParameters: {env: prod}
resource: {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: db, connect_timeout: 1s}
`
	)
	policy := func(name, clients, rules string) string { return "---" + foldertest.Policy(name, clients, rules) }
	services := foldertest.Services
	owner := policy("owner", everyone, to("/", "1", "0"))
	for _, test := range []struct {
		name, before, after string
		// headers are the first two lines of the difference of each resource, and lines are changes among others.
		headers, lines []string
	}{
		{"nothing", services + owner, services + owner, nil, nil},
		{"only places", services + owner, "# more lines\n" + services + owner, nil, nil},
		{"another split", services + owner, services + policy("owner", everyone, to("/", "95", "5")),
			[]string{"--- store: RouteConfiguration backend\n+++ folder: RouteConfiguration backend\n"}, []string{"+                  weight: 95\n"}},
		{"endpoints", services, strings.Replace(services, "10.0.0.2:80", "10.0.0.3:80", 1),
			[]string{"--- store: ClusterLoadAssignment backend\n+++ folder: ClusterLoadAssignment backend\n"},
			[]string{"-                address: 10.0.0.2\n+                address: 10.0.0.3\n"}},
		{"a resource more, which is for some clients", services, services + db,
			[]string{"--- /dev/null\n+++ folder: Cluster db {env=prod}\n"}, []string{"+  env: prod\n"}},
		{"a resource less", services + db, services,
			[]string{"--- store: Cluster db {env=prod}\n+++ /dev/null\n"}, []string{"-  connect_timeout: 1s\n"}},
		{"a policy for one service", services + owner, services + owner + policy("mine", frontend, to("/a", "0", "1")), []string{
			"--- /dev/null\n+++ folder: RouteConfiguration backend {service=frontend}\n",
		}, []string{"+  service: frontend\n"}},
		{"an error in the place of routes", services, services + "---" + strings.Replace(foldertest.Policy("lost", everyone, to("/", "1", "0")), "name: backend", "name: lost", 1),
			nil, []string{"+kind: Error\n"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			differ, err := site.Diff(&b, parse(t, test.before), parse(t, test.after))
			xdstest.NoError(t, err)
			text := b.String()
			var headers []string
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, "--- ") {
					headers = append(headers, line)
				} else if strings.HasPrefix(line, "+++ ") {
					headers[len(headers)-1] += line
				}
			}
			if differ != len(headers) {
				t.Errorf("%d resources differ, want %d:\n%s", differ, len(headers), text)
			}
			if test.headers != nil || test.lines == nil {
				xdstest.Equal(t, "what differs", test.headers, headers)
			}
			for _, want := range test.lines {
				if !strings.Contains(text, want) {
					t.Errorf("the difference lacks %q:\n%s", want, text)
				}
			}
		})
	}
}

func parse(t *testing.T, text string) *folder.Content {
	t.Helper()
	content, err := folder.Join("dir", []*folder.File{folder.Parse("dir/mesh.yaml", []byte(text))})
	xdstest.NoError(t, err)
	return content
}
