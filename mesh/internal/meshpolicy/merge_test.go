package meshpolicy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// sameMerged compares everything that can be seen of merged policies.
var sameMerged = cmp.Options{
	cmpopts.IgnoreUnexported(meshpolicy.Rule{}), cmp.Comparer(func(a, b *meshpolicy.Policy) bool { return a == b }),
}

// sendAll sends requests to one service on to another.
func sendAll(to, service string) meshpolicy.To {
	return policytest.To(to, meshpolicy.Rule{BackendRefs: policytest.Send(service)})
}

// Decision record, "Merging behavior": the order of specificity.
func TestMerge_TheMoreSpecificWins(t *testing.T) {
	t.Parallel()
	v1 := map[string]string{"version": "v1"}
	client := meshpolicy.Client{Service: "frontend", Tags: v1}
	var policies []*meshpolicy.Policy
	for i, target := range []meshpolicy.TargetRef{{}, {Tags: v1}, {Name: "frontend"}, {Name: "frontend", Tags: v1}} {
		// The name that would win by the alphabet belongs to the less specific one.
		name := string(rune('a' + i))
		policies = append(policies, policytest.New(name, target, sendAll("backend", name)))
		merged := policytest.Merge(policies, client, "backend")
		if len(merged.Rules) != 1 || merged.Rules[0].BackendRefs[0].Name != name || len(merged.Rules[0].MatchesFrom) != len(policies) {
			t.Errorf("with %v: got\n%v", target, merged)
		}
	}
}

// Ties are decided by name, as Kuma does: the first in the alphabet is the more
// specific one.
func TestMerge_TiesByName(t *testing.T) {
	t.Parallel()
	var policies []*meshpolicy.Policy
	for _, name := range []string{"b", "a", "c"} {
		policies = append(policies, policytest.New(name, meshpolicy.TargetRef{}, sendAll("backend", name)))
	}
	if got := policytest.Merge(policies, meshpolicy.Client{}, "backend").Rules[0].BackendRefs[0].Name; got != "a" {
		t.Errorf("policy %s wins, want a", got)
	}
}

// A destination by name is more specific than all destinations, where the clients
// are equally so.
func TestMerge_DestinationsBySpecificity(t *testing.T) {
	t.Parallel()
	all := sendAll("", "all")
	policies := []*meshpolicy.Policy{
		policytest.New("a", meshpolicy.TargetRef{}, all),
		policytest.New("b", meshpolicy.TargetRef{}, sendAll("backend", "one")),
	}
	if got := policytest.Merge(policies, meshpolicy.Client{}, "backend").Rules[0].BackendRefs[0].Name; got != "one" {
		t.Errorf("requests go to %s, want one", got)
	}
	policies = append(policies, policytest.New("c", meshpolicy.TargetRef{Name: "frontend"}, all))
	if got := policytest.Merge(policies, frontend, "backend").Rules[0].BackendRefs[0].Name; got != "all" {
		t.Errorf("requests of frontend go to %s, want all", got)
	}
}

// "The more specific policy replaces the fields it sets", and no other; an empty
// list is set.
func TestMerge_FieldByField(t *testing.T) {
	t.Parallel()
	edit := []meshpolicy.Filter{{Type: meshpolicy.RequestHeaderModifier, Headers: &meshpolicy.HeaderModifier{Remove: []string{"x"}}}}
	owner := policytest.New("owner", meshpolicy.TargetRef{}, policytest.To("backend", meshpolicy.Rule{Filters: edit, BackendRefs: policytest.Send("v1")}))
	tests := []struct {
		given                 string
		consumer              meshpolicy.Rule
		filters, backends     int
		filtersFrom, sentFrom string
	}{
		{"nothing", meshpolicy.Rule{}, 1, 1, "owner", "owner"},
		{"filters", meshpolicy.Rule{Filters: append(edit, meshpolicy.Filter{Type: meshpolicy.RequestMirror, Mirror: &policytest.Send("v2")[0]})}, 2, 1, "consumer", "owner"},
		{"no filters", meshpolicy.Rule{Filters: []meshpolicy.Filter{}}, 0, 1, "consumer", "owner"},
		{"backendRefs", meshpolicy.Rule{BackendRefs: append(policytest.Send("v2"), policytest.Send("v3")...)}, 1, 2, "owner", "consumer"},
		{"no backendRefs", meshpolicy.Rule{BackendRefs: []meshpolicy.BackendRef{}}, 1, 0, "owner", "consumer"},
	}
	for _, test := range tests {
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			consumer := policytest.New("consumer", meshpolicy.TargetRef{Name: "frontend"}, policytest.To("backend", test.consumer))
			got := policytest.Merge([]*meshpolicy.Policy{owner, consumer}, frontend, "backend").Rules[0]
			if len(got.Filters) != test.filters || len(got.BackendRefs) != test.backends ||
				got.From[meshpolicy.FieldFilters].Policy.Name != test.filtersFrom || got.From[meshpolicy.FieldBackendRefs].Policy.Name != test.sentFrom {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// "Structural equality of the matches value": neither the order of entries counts nor
// that of conditions, nor what is written twice, nor the case of header names.
func TestMerge_EqualMatches(t *testing.T) {
	t.Parallel()
	written := []string{
		`[{path: {type: Prefix, value: /a}, methods: [GET, POST], headers: [{name: x, value: "1"}, {name: y, type: Present}]}, {path: {type: Exact, value: /b}}]`,
		`[{path: {exact: /b}}, {headers: [{type: Present, name: Y}, {type: Exact, name: X, value: "1"}], path: {prefix: /a/}, methods: [POST, GET, POST]}]`,
		`[{path: {exact: /b}}, {path: {exact: /b}}, {methods: [POST, GET], path: {prefix: /a}, headers: [{name: y, type: Present}, {name: x, value: "1"}, {name: X, value: "1"}]}]`,
	}
	var policies []*meshpolicy.Policy
	for i, matches := range written {
		p := policytest.Parse(t, "f", policytest.Text("    - {matches: "+matches+"}\n"))[0]
		p.Name = string(rune('a' + i))
		policies = append(policies, p)
	}
	if merged := policytest.Merge(policies, meshpolicy.Client{}, "s"); len(merged.Rules) != 1 || len(merged.Rules[0].MatchesFrom) != 3 {
		t.Errorf("got\n%v", merged)
	}
}

// Merging is idempotent, for MeshHTTPRoutes associative over the order of specificity, and does not
// depend on the order in which policies are read.
func TestMerge_Properties(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		policies := policytest.Policies(r, 6)
		c := policytest.Pick(r, policytest.Clients())
		want := policytest.Merge(policies, c, "a")

		shuffled := slices.Clone(policies)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if diff := cmp.Diff(want, policytest.Merge(shuffled, c, "a"), sameMerged); diff != "" {
			t.Fatalf("in another order (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, meshpolicy.Join(want, want), sameMerged, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("merged with itself (-want +got):\n%s", diff)
		}

		var layers []meshpolicy.Merged
		for _, p := range slices.DeleteFunc(policies, func(p *meshpolicy.Policy) bool { return p.Kind != "" }) {
			for _, part := range policytest.PartsFor(p, "a") {
				layers = append(layers, part.Merged())
			}
		}
		if len(layers) < 3 {
			continue
		}
		i := 1 + r.IntN(len(layers)-2)
		j := i + 1 + r.IntN(len(layers)-i-1)
		a, b, d := meshpolicy.Join(layers[:i]...), meshpolicy.Join(layers[i:j]...), meshpolicy.Join(layers[j:]...)
		if diff := cmp.Diff(meshpolicy.Join(layers...), meshpolicy.Join(meshpolicy.Join(a, b), d), sameMerged); diff != "" {
			t.Fatalf("(a b) c (-a b c +got):\n%s", diff)
		}
		if diff := cmp.Diff(meshpolicy.Join(layers...), meshpolicy.Join(a, meshpolicy.Join(b, d)), sameMerged); diff != "" {
			t.Fatalf("a (b c) (-a b c +got):\n%s", diff)
		}
	}
}

// Gateway API, HTTPRouteRule.matches, and where it leaves the order to implementations Kuma's
// CompareMatch: the order in which routes are tried.
func TestRoutes_Precedence(t *testing.T) {
	t.Parallel()
	conditions := func(n int) []meshpolicy.ValueMatch {
		var list []meshpolicy.ValueMatch
		for i := range n {
			list = append(list, meshpolicy.ValueMatch{Name: fmt.Sprint(i), Type: meshpolicy.Present})
		}
		return list
	}
	exact, long, short, re, shortRE := policytest.Exact("/a"), policytest.Prefix("/a/b"), policytest.Prefix("/a"), policytest.Regex("/a/b/c.*"), policytest.Regex("/a.*")
	post := []string{"POST"}
	ordered := []meshpolicy.Match{
		{Path: exact, Methods: post},
		{Path: exact, Headers: conditions(2)},
		{Path: exact, Headers: conditions(1), Query: []meshpolicy.ValueMatch{{Name: "q"}}},
		{Path: exact, Headers: conditions(1)},
		{Path: exact, Query: []meshpolicy.ValueMatch{{Name: "q"}, {Name: "r"}}},
		{Path: exact, Query: []meshpolicy.ValueMatch{{Name: "q"}}},
		{Path: policytest.Exact("/a/b")}, // its length makes no difference
		{Path: long},
		{Path: short, Methods: post, Headers: conditions(3)},
		{Path: short, Methods: []string{"GET", "POST"}},
		{Path: short},
		{Path: policytest.Prefix("/"), Headers: conditions(1)},
		{Path: re, Headers: conditions(2)},
		{Path: re},
		{Path: shortRE, Methods: post, Headers: conditions(3)},
		{Path: shortRE},
		{Methods: post},
		{Headers: conditions(2)},
		{Headers: conditions(1), Query: []meshpolicy.ValueMatch{{Name: "q"}}},
		{Query: []meshpolicy.ValueMatch{{Name: "q"}}},
	}
	var want []string
	rules := make([]meshpolicy.Rule, len(ordered))
	for i := range ordered {
		rules[i].Matches = meshpolicy.NormalizeMatches([]meshpolicy.Match{ordered[i]})
		want = append(want, rules[i].Matches[0].String())
	}
	want = append(want, "any path")
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		r.Shuffle(len(rules), func(i, j int) { rules[i], rules[j] = rules[j], rules[i] })
		var got []string
		for _, route := range policytest.Merge([]*meshpolicy.Policy{policytest.New("p", meshpolicy.TargetRef{}, policytest.To("s", slices.Clone(rules)...))}, meshpolicy.Client{}, "s").Routes() {
			got = append(got, route.Match.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
}

// "Then policy order": of equals the more specific policy comes first, then the rule
// that is written first.
func TestRoutes_TiesByPolicy(t *testing.T) {
	t.Parallel()
	on := func(name, to string) meshpolicy.Rule {
		return meshpolicy.Rule{Matches: []meshpolicy.Match{{Path: policytest.Prefix("/"), Headers: []meshpolicy.ValueMatch{{Name: name, Type: meshpolicy.Present}}}}, BackendRefs: policytest.Send(to)}
	}
	policies := []*meshpolicy.Policy{
		policytest.New("owner", meshpolicy.TargetRef{}, policytest.To("s", on("a", "3"), on("b", "4"))),
		policytest.New("consumer", meshpolicy.TargetRef{Name: "frontend"}, policytest.To("s", on("d", "1"), on("c", "2"))),
	}
	var got []string
	for _, r := range policytest.Merge(policies, frontend, "s").Routes() {
		if r.Rule != nil {
			got = append(got, r.Rule.BackendRefs[0].Name)
		}
	}
	policytest.Equal(t, "the order of backends", []string{"1", "2", "3", "4"}, got)
}

// Merged rules have no lines, and are independent of those that are merged from the same layer.
func TestMerge_LayersAreNotShared(t *testing.T) {
	t.Parallel()
	var layers []meshpolicy.Merged
	for _, p := range policytest.Parse(t, "f", strings.Join(slices.Repeat([]string{policytest.Text("    - {filters: []}\n")}, 5), "---\n")) {
		layers = append(layers, policytest.PartsFor(p, "s")[0].Merged())
	}
	shared := meshpolicy.Join(layers[:3]...)
	one, other := meshpolicy.Join(shared, layers[3]).Rules[0], meshpolicy.Join(shared, layers[4]).Rules[0]
	policytest.Equal(t, "the last origins", []int{31, 39}, []int{one.MatchesFrom[3].Source().Line, other.MatchesFrom[3].Source().Line})
	if one.Line != 0 || one.Lines != [meshpolicy.NumFields]int{} {
		t.Errorf("the rule is at line %d, its fields at %v", one.Line, one.Lines)
	}
}

// New normalizes rules that a program makes, and tells which are equal and to which services they lead.
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
	var subsets []string
	for _, s := range p.To[0].Subsets() {
		subsets = append(subsets, s.ID)
	}
	policytest.Equal(t, "services", []string{"0", "a", "b"}, p.To[0].Services())
	policytest.Equal(t, "subsets", []string{"a;v=1", "b;y=2;z=1"}, subsets)
	policytest.Equal(t, "a service without tags", "b", meshpolicy.NewSubset("b", nil).ID)
	policytest.Equal(t, "an empty list of backends leads nowhere", false, (&meshpolicy.Rule{}).Nowhere())
	for _, test := range []struct {
		given                string
		other                *meshpolicy.Policy
		target, rules, match bool
	}{
		{"the same in other words", build("t", "s", "b", "/a"), true, true, true},
		{"other clients", build("u", "s", "b", "/a"), false, true, true},
		{"another destination", build("t", "r", "b", "/a"), true, false, true},
		{"another backend", build("t", "s", "c", "/a"), true, false, true},
		{"another match", build("t", "s", "b", "/b"), true, false, false},
	} {
		a, b := &p.To[0], &test.other.To[0]
		policytest.Equal(t, test.given, []bool{test.target, test.rules, test.match},
			[]bool{p.TargetKey() == test.other.TargetKey(), a.Digest() == b.Digest(), a.Rules[0].MatchesKey() == b.Rules[0].MatchesKey()})
	}
	for given, change := range map[string]func(*meshpolicy.Rule){
		"the line of the rule": func(r *meshpolicy.Rule) { r.Line++ },
		"the line of a field":  func(r *meshpolicy.Rule) { r.Lines[meshpolicy.FieldRetry]++ },
		"the line of a match":  func(r *meshpolicy.Rule) { r.Matches[1].Line++ },
	} {
		rule, other := &p.To[0].Rules[0], build("t", "s", "b", "/a").To[0].Rules[0]
		if !rule.SameLines(&other) {
			t.Error("equal rules are not at the same lines")
		}
		if change(&other); rule.SameLines(&other) {
			t.Errorf("%s makes no difference", given)
		}
	}
}

// Places in files and documents, in words.
func TestPlaces(t *testing.T) {
	t.Parallel()
	mesh, route := &meshpolicy.Policy{To: []meshpolicy.To{{Index: 1}}}, &meshpolicy.Policy{Kind: meshpolicy.HTTPRouteKind}
	policytest.Equal(t, "places", []string{"f", "line 3", "f:3", "f\\n:3", "spec.to[1].targetRef", "spec.to[1].rules[0]", "spec.parentRefs", "spec.rules[0]"}, []string{
		meshpolicy.Source{File: "f"}.String(), meshpolicy.Source{Line: 3}.String(), meshpolicy.Source{File: "f", Line: 3}.String(), meshpolicy.Source{File: "f\n", Line: 3}.String(),
		mesh.Path(0, -1), mesh.Path(0, 0), route.Path(1, -1), route.Path(1, 0),
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
		policytest.Equal(t, "tags", want, []string{c.Tag(meshpolicy.ServiceKey), c.Tag("v"), c.Tag(meshpolicy.RoutesKey), c.Tag(meshpolicy.AddressesKey)})
	}
	policytest.Equal(t, "clients", []string{"service=a,v=1", "v=1", "a client without tags"}, []string{
		meshpolicy.Client{Service: "a", Tags: map[string]string{"v": "1"}}.String(), meshpolicy.Client{Tags: map[string]string{"v": "1"}}.String(), meshpolicy.Client{}.String(),
	})
}
