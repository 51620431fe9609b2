// Package policytest makes policies for tests: of a few lines of text, of rules, and at
// random.
package policytest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/internal/meshpolicy"
)

// Parse parses policies that have to be valid.
func Parse(t testing.TB, name, text string) []*meshpolicy.Policy {
	t.Helper()
	policies, err := meshpolicy.Parse(name, []byte(text))
	if err != nil {
		t.Fatalf("Parse:\n%v", err)
	}
	return policies
}

// Equal fails the test with the difference if two values differ. what names them.
func Equal(t testing.TB, what string, want, got any, opts ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Text puts rules, in flow style, into the policy p for the service s. They start at
// line 7.
func Text(rules string) string {
	return "name: p\nspec:\n  targetRef: {kind: Mesh}\n  to:\n  - targetRef: {kind: MeshService, name: s}\n    rules:\n" + rules
}

// New makes a policy as Parse does.
func New(name string, target meshpolicy.TargetRef, to ...meshpolicy.To) *meshpolicy.Policy {
	return meshpolicy.New(meshpolicy.Policy{Name: name, Source: meshpolicy.Source{File: name + ".yaml", Line: 1}, TargetRef: target, To: to})
}

// To has rules for one service.
func To(service string, rules ...meshpolicy.Rule) meshpolicy.To {
	return meshpolicy.To{TargetRef: meshpolicy.TargetRef{Name: service}, Rules: rules}
}

// Send sends all requests to one service.
func Send(service string) []meshpolicy.BackendRef {
	return []meshpolicy.BackendRef{{Name: service, Weight: 1}}
}

// Exact is the condition that the path is this one.
func Exact(path string) meshpolicy.PathMatch {
	return meshpolicy.PathMatch{Type: meshpolicy.Exact, Value: path}
}

// Prefix is the condition that the path starts with these segments.
func Prefix(path string) meshpolicy.PathMatch {
	return meshpolicy.PathMatch{Type: meshpolicy.Prefix, Value: path}
}

// Regex is the condition that the path matches a regular expression.
func Regex(path string) meshpolicy.PathMatch {
	return meshpolicy.PathMatch{Type: meshpolicy.RegularExpression, Value: path}
}

// On has the condition on the path alone.
func On(path meshpolicy.PathMatch) []meshpolicy.Match { return []meshpolicy.Match{{Path: path}} }

// SetHeader is a filter that sets a header of requests.
func SetHeader(name, value string) meshpolicy.Filter {
	return meshpolicy.Filter{
		Type:    meshpolicy.RequestHeaderModifier,
		Headers: &meshpolicy.HeaderModifier{Set: []meshpolicy.Header{{Name: name, Value: value}}},
	}
}
