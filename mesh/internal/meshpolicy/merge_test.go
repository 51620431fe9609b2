package meshpolicy_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// sameMerged compares everything that can be seen of merged policies.
var sameMerged = cmp.Options{
	cmpopts.IgnoreUnexported(meshpolicy.Rule{}), cmpopts.IgnoreFields(meshpolicy.Rule{}, "To", "Index"), cmp.Comparer(func(a, b *meshpolicy.Rule) bool { return a == b }),
}

// Merging does not depend on the order in which policies are read, and takes each field from the most specific rule that has it.
func TestMerge_Properties(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		policies := policytest.Policies(r, 6)
		c := policytest.Pick(r, policytest.Clients())
		want := policytest.Merge(policies, c, "a")
		r.Shuffle(len(policies), func(i, j int) { policies[i], policies[j] = policies[j], policies[i] })
		if diff := cmp.Diff(want, policytest.Merge(policies, c, "a"), sameMerged); diff != "" {
			t.Fatalf("in another order (-want +got):\n%s", diff)
		}
		for _, rule := range want.Rules {
			for f := range meshpolicy.NumFields {
				i := slices.IndexFunc(rule.MatchesFrom, func(o *meshpolicy.Rule) bool { return o.Has(f) })
				if got := rule.From[f]; rule.Has(f) != (i >= 0) || i >= 0 && got != rule.MatchesFrom[i] || i < 0 && got != nil {
					t.Fatalf("%s is from %+v, of %+v", meshpolicy.FieldNames[f], got, rule.MatchesFrom)
				}
			}
		}
	}
}

// New normalizes rules that a program makes, and tells which have equal matches and to which services they lead.
func TestNew(t *testing.T) {
	t.Parallel()
	refs := []meshpolicy.BackendRef{
		{Name: "b", Tags: map[string]string{"z": "1", "y": "2"}, Weight: 1}, {Name: "a", Tags: map[string]string{"v": "1"}, Weight: 1},
		{Name: "b", Weight: 1}, {Name: "a", Tags: map[string]string{"v": "1"}, Weight: 1},
	}
	mirror := meshpolicy.Filter{Type: meshpolicy.RequestMirror, Mirror: &meshpolicy.BackendRef{Name: "0"}}
	build := func(target, to, backend, path string) *meshpolicy.Policy {
		refs := slices.Clone(refs)
		refs[2].Name = backend
		return policytest.New("p", meshpolicy.TargetRef{Name: target}, policytest.To(to, meshpolicy.Rule{
			Line: 1, Matches: []meshpolicy.Match{{Line: 2, Path: policytest.Prefix(path)}, {Line: 2, Path: policytest.Exact("/")}},
			BackendRefs: refs, Filters: []meshpolicy.Filter{mirror, policytest.SetHeader("a", "b")},
		}))
	}
	p := build("t", "s", "b", "/a/")
	xdstest.Equal(t, "subsets", map[string]meshpolicy.Subsets{
		"0": {}, "a": {"a;v=1": {"v": "1"}}, "b": {"b;y=2;z=1": {"y": "2", "z": "1"}},
	}, p.To[0].Subsets())
	xdstest.Equal(t, "a service without tags", "b", meshpolicy.BackendRef{Name: "b"}.Subset())
	xdstest.Equal(t, "an empty list of backends leads nowhere", false, (&meshpolicy.Rule{}).Nowhere())
	for path, same := range map[string]bool{"/a": true, "/b": false} {
		xdstest.Equal(t, "equal matches with "+path, same, p.To[0].Rules[0].MatchesKey() == build("t", "s", "b", path).To[0].Rules[0].MatchesKey())
	}
}

// Places in files and documents, in words.
func TestPlaces(t *testing.T) {
	t.Parallel()
	rules := []meshpolicy.Rule{{}}
	mesh, route := meshpolicy.New(meshpolicy.Policy{To: []meshpolicy.To{{Index: 1, Rules: rules}}}).To[0], meshpolicy.New(meshpolicy.Policy{Kind: meshpolicy.HTTPRouteKind, To: []meshpolicy.To{{Rules: rules}}}).To[0]
	xdstest.Equal(t, "places", []string{"f", "line 3", "f:3", "f\\n:3", "spec.to[1].targetRef", "spec.to[1].rules[0]", "spec.parentRefs", "spec.rules[0]"}, []string{
		meshpolicy.Source{File: "f"}.String(), meshpolicy.Source{Line: 3}.String(), meshpolicy.Source{File: "f", Line: 3}.String(), meshpolicy.Source{File: "f\n", Line: 3}.String(),
		mesh.Path(), mesh.Rules[0].Path(), route.Path(), route.Rules[0].Path(),
	})
}

// Properties of clients that their implementation decides are tags too.
func TestClient(t *testing.T) {
	t.Parallel()
	tags := map[string]string{"v": "1", meshpolicy.RoutesKey: "x", meshpolicy.AddressesKey: "x", meshpolicy.ServiceKey: "x"}
	for implementation, want := range map[dialect.Implementation][]string{
		dialect.Dynxds:    {"frontend", "1", "", ""},
		dialect.GRPCGo:    {"frontend", "1", meshpolicy.GRPCRoutes, ""},
		dialect.OtherGRPC: {"frontend", "1", meshpolicy.GRPCRoutes, meshpolicy.IPAddresses},
		dialect.Envoy:     {"frontend", "1", "", meshpolicy.IPAddresses},
	} {
		c := meshpolicy.Client{Service: "frontend", Tags: tags, Implementation: implementation}
		xdstest.Equal(t, "tags", want, []string{c.Tag(meshpolicy.ServiceKey), c.Tag("v"), c.Tag(meshpolicy.RoutesKey), c.Tag(meshpolicy.AddressesKey)})
	}
	xdstest.Equal(t, "clients", []string{"service=a,v=1", "v=1", "a client without tags"}, []string{
		meshpolicy.Client{Service: "a", Tags: map[string]string{"v": "1"}}.String(), meshpolicy.Client{Tags: map[string]string{"v": "1"}}.String(), meshpolicy.Client{}.String(),
	})
}
