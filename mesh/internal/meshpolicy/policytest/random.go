package policytest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// Services are the names of services in random policies. There are few names, so that policies
// overlap.
var Services = []string{"a", "b", "c"}

var (
	worldTags  = map[string][]string{"env": {"dev", "prod"}, "version": {"v1", "v2", "v3"}, "zone": {"x"}}
	worldPaths = []meshpolicy.PathMatch{
		Exact("/p.S/M"), Exact("/p.S"), Prefix("/"), Prefix("/p.S"), Prefix("/p.S/M"), Prefix("/p"), Regex("/p.S/.*"), Regex("/[pq].*"), {},
	}
)

// Pick returns one of several values.
func Pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// Tags returns at least that many tags.
func Tags(r *rand.Rand, least int) map[string]string {
	tags := make(map[string]string)
	for len(tags) < least || r.IntN(3) == 0 {
		key := Pick(r, []string{"env", "version", "zone"})
		tags[key] = Pick(r, worldTags[key])
	}
	return tags
}

// Target returns a TargetRef of any kind.
func Target(r *rand.Rand) meshpolicy.TargetRef {
	var ref meshpolicy.TargetRef
	kind := r.IntN(4)
	if kind >= 2 {
		ref.Name = Pick(r, Services)
	}
	if kind%2 == 1 {
		ref.Tags = Tags(r, 1)
	}
	return ref
}

func match(r *rand.Rand) meshpolicy.Match {
	m := meshpolicy.Match{Path: Pick(r, worldPaths)}
	if r.IntN(4) == 0 {
		m.Methods = Pick(r, [][]string{{"GET"}, {"POST"}, {"GET", "POST"}})
	}
	if r.IntN(8) == 0 {
		m.Query = []meshpolicy.ValueMatch{{Name: "q", Type: meshpolicy.Exact, Value: "x"}}
	}
	for r.IntN(3) == 0 {
		h := meshpolicy.ValueMatch{Name: Pick(r, []string{"h", "i"}), Type: Pick(r, []string{meshpolicy.Exact, meshpolicy.Prefix, meshpolicy.RegularExpression, meshpolicy.Present, meshpolicy.Absent})}
		if h.Type != meshpolicy.Present && h.Type != meshpolicy.Absent {
			h.Value = Pick(r, []string{"x", "xy", "x.?"})
		}
		m.Headers = append(m.Headers, h)
	}
	return m
}

// rule has up to two matches.
func rule(r *rand.Rand) meshpolicy.Rule {
	var rule meshpolicy.Rule
	for range r.IntN(3) {
		rule.Matches = append(rule.Matches, match(r))
	}
	rule.Matches = meshpolicy.NormalizeMatches(rule.Matches)
	if r.IntN(2) == 0 {
		rule.Filters = []meshpolicy.Filter{}
		if r.IntN(2) == 0 {
			rule.Filters = []meshpolicy.Filter{SetHeader("set", fmt.Sprint(r.IntN(3)))}
		}
	}
	if r.IntN(2) == 0 {
		rule.BackendRefs = Send(Pick(r, Services))
		if r.IntN(3) == 0 {
			rule.BackendRefs[0].Tags = Tags(r, 1)
		}
	}
	if r.IntN(8) == 0 {
		second := time.Duration(r.IntN(3)) * time.Second
		switch r.IntN(3) {
		case 0:
			rule.Timeouts = &meshpolicy.Timeouts{Request: &second}
		case 1:
			rule.Retry = &meshpolicy.Retry{Codes: []int{503}, Backoff: second}
		default:
			rule.Session = &meshpolicy.Session{Header: Pick(r, Services)}
		}
	}
	return rule
}

// Rules returns up to n rules, whose matches differ.
func Rules(r *rand.Rand, n int) []meshpolicy.Rule {
	var rules []meshpolicy.Rule
	seen := make(map[string]bool)
	for range n {
		rule := rule(r)
		if key := meshpolicy.Key(rule.Matches); !seen[key] {
			seen[key] = true
			rules = append(rules, rule)
		}
	}
	return rules
}

func policy(r *rand.Rand, name string) *meshpolicy.Policy {
	var to []meshpolicy.To
	for _, service := range []string{"", "a", "b"} {
		if r.IntN(2) == 0 {
			to = append(to, To(service, Rules(r, 1+r.IntN(2))...))
		}
	}
	if r.IntN(3) > 0 {
		return New(name, Target(r), to...)
	}
	route := meshpolicy.Policy{Kind: Pick(r, []string{meshpolicy.GRPCRouteKind, meshpolicy.HTTPRouteKind}), Name: name,
		Source: meshpolicy.Source{File: name + ".yaml", Line: 1}, Complete: r.IntN(2) == 0, To: to}
	for i := range to {
		if r.IntN(2) == 0 {
			to[i].Clients.Tags = map[string]string{meshpolicy.NamespaceTag: "x"}
		}
	}
	return meshpolicy.New(route)
}

// Policies returns n policies.
func Policies(r *rand.Rand, n int) []*meshpolicy.Policy {
	var policies []*meshpolicy.Policy
	for i := range n {
		policies = append(policies, policy(r, fmt.Sprintf("p%d", i)))
	}
	return policies
}

// Clients returns a client for each combination of known and unknown services and tags, of dynxds and of
// another implementation.
func Clients() []meshpolicy.Client {
	var clients []meshpolicy.Client
	for _, s := range []string{"", "a", "b", "c", "unheard"} {
		for _, env := range []string{"", "dev", "prod", "unheard"} {
			for _, version := range []string{"", "v1", "v2", "v3", "unheard"} {
				for i, zone := range []string{"", "x", "", "x"} {
					for _, implementation := range []dialect.Implementation{dialect.Dynxds, dialect.OtherGRPC} {
						clients = append(clients, meshpolicy.Client{
							Service: s, Tags: map[string]string{"env": env, "version": version, "zone": zone, meshpolicy.NamespaceTag: []string{"", "", "x", "x"}[i], "more": "y"}, Implementation: implementation,
						})
					}
				}
			}
		}
	}
	return clients
}
