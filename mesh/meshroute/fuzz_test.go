package meshroute

import (
	"maps"
	"slices"
	"testing"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

func FuzzParse(f *testing.F) {
	f.Add([]byte(policytest.Text("    - {matches: {path: {prefix: /v1}}, backendRefs: [{kind: MeshServiceSubset, name: s, weight: 90, tags: {version: v1}}]}\n")))
	f.Add([]byte(policytest.Text("    - matches: [{methods: [GET, POST], path: {regularExpression: \"/a|b\"}, headers: [{name: a, type: Present}], queryParams: [{name: a, value: \"\"}]}]\n" +
		"      filters: [{requestRedirect: {scheme: https, path: /a}}, {requestMirror: {backendRef: {kind: MeshService, name: s, tags: {a: b}}}}]\n")))
	f.Add([]byte(policytest.Text("    - filters: [{urlRewrite: {hostname: a, path: {replacePrefixMatch: /x%}}}, {responseHeader: {set: [{name: a, value: \"%a\"}], remove: [b]}}]\n")))
	f.Fuzz(func(t *testing.T, data []byte) {
		policies, err := Parse("f", data)
		if err == nil && len(policies) == 0 {
			return
		}
		in := Input{Authority: "example.com"}
		seen, services := make(map[string]bool), make(map[string]bool)
		for _, p := range policies {
			if !seen[p.Name] {
				in.Policies = append(in.Policies, p)
			}
			seen[p.Name] = true
			for _, to := range p.To {
				for _, name := range append(slices.Sorted(maps.Keys(to.Subsets())), to.TargetRef.Name) {
					if name != "" && !services[name] {
						in.Services = append(in.Services, service(name))
					}
					services[name] = true
				}
			}
		}
		m := accepted(t, in, nil)
		for _, p := range in.Policies {
			c := meshpolicy.Client{Service: p.To[0].Clients.Name, Tags: p.To[0].Clients.Tags}
			for name := range services {
				merged, _ := m.Merged(c, name)
				_ = merged.String()
			}
			if _, err := ConstraintsFor(c, m.Keys()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
