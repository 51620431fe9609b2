// Package policytest makes policies for tests: from text, from rules, and at random.
package policytest

import (
	"slices"
	"testing"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// Parse parses valid policies.
func Parse(t testing.TB, name, text string) []*meshpolicy.Policy {
	t.Helper()
	policies, err := meshpolicy.Parse(name, []byte(text))
	if err != nil {
		t.Fatalf("Parse:\n%v", err)
	}
	return policies
}

// Merge merges the policies that select the client and the service. Their order does not matter.
func Merge(policies []*meshpolicy.Policy, c meshpolicy.Client, service string) meshpolicy.Merged {
	var parts []*meshpolicy.To
	for _, p := range policies {
		for i := range p.To {
			if name := p.To[i].TargetRef.Name; p.To[i].Clients.Selects(c) && (name == "" || name == service) {
				parts = append(parts, &p.To[i])
			}
		}
	}
	slices.SortFunc(parts, (*meshpolicy.To).Compare)
	return meshpolicy.MergeParts(parts)
}

// Text is the policy p for the service s with rules in flow style, which start at line 7.
func Text(rules string) string {
	return "name: p\nspec:\n  targetRef: {kind: Mesh}\n  to:\n  - targetRef: {kind: MeshService, name: s}\n    rules:\n" + rules
}

// New returns a complete policy.
func New(name string, clients meshpolicy.TargetRef, to ...meshpolicy.To) *meshpolicy.Policy {
	for i := range to {
		to[i].Index, to[i].Clients = i, clients
	}
	return meshpolicy.New(meshpolicy.Policy{Name: name, Source: meshpolicy.Source{File: name + ".yaml", Line: 1}, To: to})
}

// To has rules for one service.
func To(service string, rules ...meshpolicy.Rule) meshpolicy.To {
	return meshpolicy.To{TargetRef: meshpolicy.TargetRef{Name: service}, Rules: rules}
}

// Send sends all requests to one service.
func Send(service string) []meshpolicy.BackendRef {
	return []meshpolicy.BackendRef{{Name: service, Weight: 1}}
}

// Exact matches a path.
func Exact(path string) meshpolicy.PathMatch {
	return meshpolicy.PathMatch{Type: meshpolicy.Exact, Value: path}
}

// Prefix matches paths by a prefix.
func Prefix(path string) meshpolicy.PathMatch {
	return meshpolicy.PathMatch{Type: meshpolicy.Prefix, Value: path}
}

// Regex matches paths by a regular expression.
func Regex(path string) meshpolicy.PathMatch {
	return meshpolicy.PathMatch{Type: meshpolicy.RegularExpression, Value: path}
}

// On is a match by path alone.
func On(path meshpolicy.PathMatch) []meshpolicy.Match { return []meshpolicy.Match{{Path: path}} }

// SetHeader is a filter that sets a header of requests.
func SetHeader(name, value string) meshpolicy.Filter {
	return meshpolicy.Filter{
		Type:    meshpolicy.RequestHeaderModifier,
		Headers: &meshpolicy.HeaderModifier{Set: []meshpolicy.Header{{Name: name, Value: value}}},
	}
}
