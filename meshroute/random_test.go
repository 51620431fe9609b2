package meshroute

import (
	"fmt"
	"math/rand/v2"
)

// Random meshes for properties. All names are of a small world, so that things
// meet.

var (
	worldServices = []string{"a", "b", "c"}
	worldTags     = map[string][]string{"env": {"dev", "prod"}, "version": {"v1", "v2", "v3"}, "zone": {"x"}}
	worldPaths    = []PathMatch{
		{Exact, "/p.S/M"}, {Exact, "/p.S"}, {Prefix, "/"}, {Prefix, "/p.S"}, {Prefix, "/p.S/M"}, {Prefix, "/p"},
		{RegularExpression, "/p.S/.*"}, {RegularExpression, "/[pq].*"},
	}
)

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func randomTags(r *rand.Rand, least int) map[string]string {
	tags := make(map[string]string)
	for len(tags) < least || r.IntN(3) == 0 {
		key := pick(r, []string{"env", "version", "zone"})
		tags[key] = pick(r, worldTags[key])
	}
	return tags
}

func randomTarget(r *rand.Rand) TargetRef {
	switch Kind(r.IntN(4)) {
	case MeshSubset:
		return TargetRef{Kind: MeshSubset, Tags: randomTags(r, 1)}
	case MeshService:
		return TargetRef{Kind: MeshService, Name: pick(r, worldServices)}
	case MeshServiceSubset:
		return TargetRef{Kind: MeshServiceSubset, Name: pick(r, worldServices), Tags: randomTags(r, 1)}
	default:
		return TargetRef{}
	}
}

func randomMatch(r *rand.Rand) Match {
	m := Match{Path: pick(r, worldPaths)}
	if r.IntN(4) == 0 {
		m.Methods = pick(r, [][]string{{"GET"}, {"POST"}, {"GET", "POST"}})
	}
	if r.IntN(8) == 0 {
		m.Query = []ValueMatch{{Name: "q", Value: "x"}}
	}
	for r.IntN(3) == 0 {
		h := ValueMatch{Name: pick(r, []string{"h", "i"}), Type: MatchType(r.IntN(5))}
		if h.Type <= RegularExpression {
			h.Value = pick(r, []string{"x", "xy", "x.?"})
		}
		m.Headers = append(m.Headers, h)
	}
	return m
}

func randomRule(r *rand.Rand) Rule {
	var rule Rule
	for range r.IntN(3) {
		rule.Matches = append(rule.Matches, randomMatch(r))
	}
	if r.IntN(2) == 0 {
		rule.Filters = []Filter{}
		if r.IntN(2) == 0 {
			rule.Filters = []Filter{{Type: RequestHeaderModifier, Headers: &HeaderModifier{Set: []Header{{"set", fmt.Sprint(r.IntN(3))}}}}}
		}
	}
	if r.IntN(2) == 0 {
		rule.BackendRefs = send(pick(r, worldServices))
		if r.IntN(3) == 0 {
			rule.BackendRefs[0].Kind, rule.BackendRefs[0].Tags = MeshServiceSubset, randomTags(r, 1)
		}
	}
	return rule
}

// randomPolicy has different matches in its rules.
func randomPolicy(r *rand.Rand, name string) *Policy {
	var to []To
	for _, target := range []TargetRef{{Kind: MeshAll}, {Kind: MeshService, Name: "a"}, {Kind: MeshService, Name: "b"}} {
		if r.IntN(2) == 0 {
			continue
		}
		t := To{TargetRef: target}
		seen := make(map[string]bool)
		for range 1 + r.IntN(2) {
			rule := randomRule(r)
			rule.Matches = normalizeMatches(rule.Matches)
			if key := keyOf(rule.Matches); !seen[key] {
				seen[key] = true
				t.Rules = append(t.Rules, rule)
			}
		}
		to = append(to, t)
	}
	return newPolicy(name, randomTarget(r), to...)
}

func randomPolicies(r *rand.Rand, n int) []*Policy {
	var policies []*Policy
	for i := range n {
		policies = append(policies, randomPolicy(r, fmt.Sprintf("p%d", i)))
	}
	return policies
}

// worldClients has a client for each combination of services and tags that the
// world has, and of ones that it does not, of dynxds and of another implementation.
func worldClients() []Client {
	var clients []Client
	for _, s := range []string{"", "a", "b", "c", "unheard"} {
		for _, env := range []string{"", "dev", "prod", "unheard"} {
			for _, version := range []string{"", "v1", "v2", "v3", "unheard"} {
				for _, zone := range []string{"", "x"} {
					for _, implementation := range []Implementation{Dynxds, OtherGRPC} {
						clients = append(clients, Client{
							Service: s, Tags: map[string]string{"env": env, "version": version, "zone": zone, "more": "y"}, Implementation: implementation,
						})
					}
				}
			}
		}
	}
	return clients
}

func randomInput(r *rand.Rand) Input {
	in := Input{Policies: randomPolicies(r, r.IntN(7))}
	for _, name := range worldServices {
		if r.IntN(8) > 0 {
			in.Services = append(in.Services, service(name, randomTags(r, 0), randomTags(r, 0)))
		}
	}
	for r.IntN(4) == 0 {
		d := Denial{Clients: randomTarget(r), Reason: pick(r, []string{"", "secret"})}
		if r.IntN(3) > 0 {
			d.To = TargetRef{Kind: MeshService, Name: pick(r, worldServices)}
		}
		in.Denials = append(in.Denials, d)
	}
	return in
}
