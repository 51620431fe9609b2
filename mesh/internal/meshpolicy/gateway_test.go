package meshpolicy_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

func mustParseRoutes(t *testing.T, text string) []*meshpolicy.Policy {
	t.Helper()
	policies, err := parse(text)
	xdstest.NoError(t, err)
	return policies
}

// route is a route of the service s with rules in flow style, which start at line 7.
func route(kind, rules string) string {
	return "apiVersion: gateway.networking.k8s.io/v1\nkind: " + kind + "\nmetadata: {name: p}\nspec:\n  parentRefs: [{group: '', kind: Service, name: s}]\n  rules:\n" + rules
}

// originsOf has, for each merged rule for a client, its matches and the origins of its fields.
func originsOf(policies []*meshpolicy.Policy, c meshpolicy.Client) (list []string) {
	for _, r := range policytest.Merge(policies, c, "s").Rules {
		text := r.Matches[0].String() + ":"
		for f := range meshpolicy.NumFields {
			if r.Has(f) {
				text += " " + meshpolicy.FieldNames[f] + " of " + r.From[f].To.Policy.Name
			}
		}
		list = append(list, text)
	}
	return list
}

// GRPCRouteRule.matches, HTTPRouteRule.matches (apis/v1): "matching precedence MUST be determined in order of the following criteria,
// continuing on ties: The oldest Route based on creation timestamp. The Route appearing first in alphabetical order". The rule of
// the route with precedence counts as a whole, also with the fields that it does not have. A MeshHTTPRoute is merged with it by field.
func TestGateway_TheOldestRuleWinsWhole(t *testing.T) {
	t.Parallel()
	older := mustParseRoutes(t, strings.Replace(route("HTTPRoute", "  - {timeouts: {request: 1s}}\n"), "{name: p}", "{name: z}", 1))[0]
	newer := mustParseRoutes(t, route("HTTPRoute", "  - {retry: {attempts: 2}, sessionPersistence: {}}\n  - {matches: [{path: {value: /a}}], retry: {attempts: 3}}\n"))[0]
	alike := mustParseRoutes(t, strings.Replace(route("HTTPRoute", "  - {retry: {attempts: 4}}\n"), "{name: p}", "{name: q}", 1))[0]
	older.Created, newer.Created, alike.Created = 1, 2, 2
	above := policytest.New("above", meshpolicy.TargetRef{Name: "client"}, policytest.To("s", meshpolicy.Rule{
		Matches: older.To[0].Rules[0].Matches, Filters: []meshpolicy.Filter{policytest.SetHeader("a", "b")},
	}))
	below := policytest.New("below", meshpolicy.TargetRef{}, policytest.To("", meshpolicy.Rule{
		Matches: older.To[0].Rules[0].Matches, BackendRefs: policytest.Send("t"),
	}))
	all := []*meshpolicy.Policy{alike, newer, older, above, below}
	xdstest.Equal(t, "rules of routes", []string{"path Prefix /: backendRefs of HTTPRoute/z timeouts of HTTPRoute/z", "path Prefix /a: backendRefs of HTTPRoute/p retry of HTTPRoute/p"},
		originsOf(all[:3], meshpolicy.Client{}))
	xdstest.Equal(t, "rules of routes of one age", []string{"path Prefix /: backendRefs of HTTPRoute/p retry of HTTPRoute/p sessionPersistence of HTTPRoute/p", "path Prefix /a: backendRefs of HTTPRoute/p retry of HTTPRoute/p"},
		originsOf(all[:2], meshpolicy.Client{}))
	xdstest.Equal(t, "rules with MeshHTTPRoutes", []string{
		"path Prefix /: filters of above backendRefs of HTTPRoute/z timeouts of HTTPRoute/z", "path Prefix /a: backendRefs of HTTPRoute/p retry of HTTPRoute/p",
	}, originsOf(all, meshpolicy.Client{Service: "client"}))
}

// GRPCMethodMatch: an expression is for a whole name, so that anchors at its begin and end make no difference.
func TestGateway_AnchoredExpressions(t *testing.T) {
	t.Parallel()
	names := []string{"shop", "shop.Cart", "shopping", "web.shop.Cart", "a", "b", "ab", "aa"}
	for _, pattern := range []string{
		`^shop\..*$`, `^shop\..*`, `shop\..*$`, `(?m)^shop$`, `\Ashop\z`, `^(shop|^a)$`, `^shop$|^a.*$`, `(^a)?b`, `(?:(?:^a|b$))`, `^^a$$`, `^\bshop\b.*$`, `(?i)^SHOP$`, `a.*`, `^.*$`,
	} {
		policies := mustParseRoutes(t, route("GRPCRoute", "  - {matches: [{method: {type: RegularExpression, service: '"+pattern+"', method: '"+pattern+"'}}]}\n"))
		whole, path := regexp.MustCompile("^(?:"+pattern+")$"), regexp.MustCompile("^(?:"+policies[0].To[0].Rules[0].Matches[0].Path.Value+")$")
		for _, name := range names {
			if want, got := whole.MatchString(name), path.MatchString("/"+name+"/"+name); got != want {
				t.Errorf("%s: %v matches /%s/%[3]s: %t, want %t", pattern, path, name, got, want)
			}
		}
	}
}
