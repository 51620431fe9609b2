package meshpolicy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dynxds/dynxds/internal/meshpolicy"
	"github.com/dynxds/dynxds/internal/meshpolicy/policytest"
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
		merged := meshpolicy.Merge(policies, client, "backend")
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
	if got := meshpolicy.Merge(policies, meshpolicy.Client{}, "backend").Rules[0].BackendRefs[0].Name; got != "a" {
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
	if got := meshpolicy.Merge(policies, meshpolicy.Client{}, "backend").Rules[0].BackendRefs[0].Name; got != "one" {
		t.Errorf("requests go to %s, want one", got)
	}
	policies = append(policies, policytest.New("c", meshpolicy.TargetRef{Name: "frontend"}, all))
	if got := meshpolicy.Merge(policies, frontend, "backend").Rules[0].BackendRefs[0].Name; got != "all" {
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
			got := meshpolicy.Merge([]*meshpolicy.Policy{owner, consumer}, frontend, "backend").Rules[0]
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
	if merged := meshpolicy.Merge(policies, meshpolicy.Client{}, "s"); len(merged.Rules) != 1 || len(merged.Rules[0].MatchesFrom) != 3 {
		t.Errorf("got\n%v", merged)
	}
}

// Merging is idempotent, associative over the order of specificity, and does not
// depend on the order in which policies are read.
func TestMerge_Properties(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		policies := policytest.Policies(r, 6)
		c := policytest.Pick(r, policytest.Clients())
		want := meshpolicy.Merge(policies, c, "a")

		shuffled := slices.Clone(policies)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if diff := cmp.Diff(want, meshpolicy.Merge(shuffled, c, "a"), sameMerged); diff != "" {
			t.Fatalf("in another order (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, meshpolicy.Join(want, want), sameMerged, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("merged with itself (-want +got):\n%s", diff)
		}

		var layers []meshpolicy.Merged
		for _, p := range policies {
			for _, part := range meshpolicy.PartsFor(p, "a") {
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
		{Path: exact},
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
		for _, route := range meshpolicy.Merge([]*meshpolicy.Policy{policytest.New("p", meshpolicy.TargetRef{}, policytest.To("s", slices.Clone(rules)...))}, meshpolicy.Client{}, "s").Routes() {
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
	for _, r := range meshpolicy.Merge(policies, frontend, "s").Routes() {
		if r.Rule != nil {
			got = append(got, r.Rule.BackendRefs[0].Name)
		}
	}
	policytest.Equal(t, "the order of backends", []string{"1", "2", "3", "4"}, got)
}
