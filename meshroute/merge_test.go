package meshroute

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// sameMerged compares everything that can be seen of merged policies.
var sameMerged = cmp.Options{
	cmpopts.IgnoreUnexported(MergedRule{}), cmp.Comparer(func(a, b *Policy) bool { return a == b }),
}

// Decision record, "Merging behavior": the order of specificity.
func TestMerge_TheMoreSpecificWins(t *testing.T) {
	t.Parallel()
	target := map[Kind]TargetRef{
		MeshAll:           {Kind: MeshAll},
		MeshSubset:        {Kind: MeshSubset, Tags: map[string]string{"version": "v1"}},
		MeshService:       {Kind: MeshService, Name: "frontend"},
		MeshServiceSubset: {Kind: MeshServiceSubset, Name: "frontend", Tags: map[string]string{"version": "v1"}},
	}
	client := Client{Service: "frontend", Tags: map[string]string{"version": "v1"}}
	// The name that would win by the alphabet belongs to the less specific one.
	names := []string{"a", "b", "c", "d"}
	var policies []*Policy
	for kind := MeshAll; kind <= MeshServiceSubset; kind++ {
		name := names[kind]
		policies = append(policies, newPolicy(name, target[kind], toService("backend", Rule{BackendRefs: send(name)})))
		merged := Merge(policies, client, "backend")
		if len(merged.Rules) != 1 || merged.Rules[0].BackendRefs[0].Name != name || len(merged.Rules[0].MatchesFrom) != len(policies) {
			t.Errorf("with %v: got\n%v", kind, merged)
		}
	}
}

// Ties are decided by name, as Kuma does: the first in the alphabet is the more
// specific one.
func TestMerge_TiesByName(t *testing.T) {
	t.Parallel()
	var policies []*Policy
	for _, name := range []string{"b", "a", "c"} {
		policies = append(policies, newPolicy(name, TargetRef{}, toService("backend", Rule{BackendRefs: send(name)})))
	}
	if got := Merge(policies, Client{}, "backend").Rules[0].BackendRefs[0].Name; got != "a" {
		t.Errorf("policy %s wins, want a", got)
	}
}

// A destination by name is more specific than all destinations, where the clients
// are equally so.
func TestMerge_DestinationsBySpecificity(t *testing.T) {
	t.Parallel()
	all := To{Rules: []Rule{{BackendRefs: send("all")}}}
	policies := []*Policy{
		newPolicy("a", TargetRef{}, all),
		newPolicy("b", TargetRef{}, toService("backend", Rule{BackendRefs: send("one")})),
	}
	if got := Merge(policies, Client{}, "backend").Rules[0].BackendRefs[0].Name; got != "one" {
		t.Errorf("requests go to %s, want one", got)
	}
	policies = append(policies, newPolicy("c", TargetRef{Kind: MeshService, Name: "frontend"}, all))
	if got := Merge(policies, frontend, "backend").Rules[0].BackendRefs[0].Name; got != "all" {
		t.Errorf("requests of frontend go to %s, want all", got)
	}
}

// "The more specific policy replaces the fields it sets", and no other; an empty
// list is set.
func TestMerge_FieldByField(t *testing.T) {
	t.Parallel()
	edit := []Filter{{Type: RequestHeaderModifier, Headers: &HeaderModifier{Remove: []string{"x"}}}}
	owner := newPolicy("owner", TargetRef{}, toService("backend", Rule{Filters: edit, BackendRefs: send("v1")}))
	tests := []struct {
		given                 string
		consumer              Rule
		filters, backends     int
		filtersFrom, sentFrom string
	}{
		{"nothing", Rule{}, 1, 1, "owner", "owner"},
		{"filters", Rule{Filters: append(edit, Filter{Type: RequestMirror, Mirror: &send("v2")[0]})}, 2, 1, "consumer", "owner"},
		{"no filters", Rule{Filters: []Filter{}}, 0, 1, "consumer", "owner"},
		{"backendRefs", Rule{BackendRefs: append(send("v2"), send("v3")...)}, 1, 2, "owner", "consumer"},
		{"no backendRefs", Rule{BackendRefs: []BackendRef{}}, 1, 0, "owner", "consumer"},
	}
	for _, test := range tests {
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			consumer := newPolicy("consumer", TargetRef{Kind: MeshService, Name: "frontend"}, toService("backend", test.consumer))
			got := Merge([]*Policy{owner, consumer}, frontend, "backend").Rules[0]
			if len(got.Filters) != test.filters || len(got.BackendRefs) != test.backends ||
				got.FiltersFrom.Policy.Name != test.filtersFrom || got.BackendRefsFrom.Policy.Name != test.sentFrom {
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
	var policies []*Policy
	for i, matches := range written {
		p := mustParse(t, "f", policyText("    - {matches: "+matches+"}\n"))[0]
		p.Name = string(rune('a' + i))
		policies = append(policies, p)
	}
	if merged := Merge(policies, Client{}, "s"); len(merged.Rules) != 1 || len(merged.Rules[0].MatchesFrom) != 3 {
		t.Errorf("got\n%v", merged)
	}
}

// Merging is idempotent, associative over the order of specificity, and does not
// depend on the order in which policies are read.
func TestMerge_Properties(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		policies := randomPolicies(r, 6)
		c := pick(r, worldClients())
		want := Merge(policies, c, "a")

		shuffled := slices.Clone(policies)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if diff := cmp.Diff(want, Merge(shuffled, c, "a"), sameMerged); diff != "" {
			t.Fatalf("in another order (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, merge(want, want), sameMerged, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("merged with itself (-want +got):\n%s", diff)
		}

		var layers []Merged
		for _, p := range policies {
			for _, part := range partsFor(p, "a") {
				layers = append(layers, part.merged())
			}
		}
		if len(layers) < 3 {
			continue
		}
		i := 1 + r.IntN(len(layers)-2)
		j := i + 1 + r.IntN(len(layers)-i-1)
		a, b, d := merge(layers[:i]...), merge(layers[i:j]...), merge(layers[j:]...)
		if diff := cmp.Diff(merge(layers...), merge(merge(a, b), d), sameMerged); diff != "" {
			t.Fatalf("(a b) c (-a b c +got):\n%s", diff)
		}
		if diff := cmp.Diff(merge(layers...), merge(a, merge(b, d)), sameMerged); diff != "" {
			t.Fatalf("a (b c) (-a b c +got):\n%s", diff)
		}
	}
}
