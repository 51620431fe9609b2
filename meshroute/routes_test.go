package meshroute

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Gateway API, HTTPRouteRule.matches: the order in which routes are tried.
func TestRoutes_Precedence(t *testing.T) {
	t.Parallel()
	conditions := func(n int) []ValueMatch {
		var list []ValueMatch
		for i := range n {
			list = append(list, ValueMatch{Name: fmt.Sprint(i), Type: Present})
		}
		return list
	}
	exact, long, short, re := PathMatch{Exact, "/a"}, PathMatch{Prefix, "/a/b"}, PathMatch{Prefix, "/a"}, PathMatch{RegularExpression, "/a/b/c.*"}
	post := []string{"POST"}
	ordered := []Match{
		{Path: exact, Methods: post},
		{Path: exact, Headers: conditions(2)},
		{Path: exact, Headers: conditions(1), Query: []ValueMatch{{Name: "q"}}},
		{Path: exact, Headers: conditions(1)},
		{Path: exact, Query: []ValueMatch{{Name: "q"}, {Name: "r"}}},
		{Path: exact, Query: []ValueMatch{{Name: "q"}}},
		{Path: exact},
		{Path: long},
		{Path: short, Methods: post, Headers: conditions(3)},
		{Path: short, Methods: []string{"GET", "POST"}},
		{Path: short},
		{Path: everyPath, Headers: conditions(1)},
		{Path: re, Headers: conditions(2)},
		{Path: re},
	}
	var want []string
	rules := make([]Rule, len(ordered))
	for i := range ordered {
		ordered[i].normalize()
		want = append(want, ordered[i].String())
		rules[i].Matches = []Match{ordered[i]}
	}
	want = append(want, "path Prefix /")
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		r.Shuffle(len(rules), func(i, j int) { rules[i], rules[j] = rules[j], rules[i] })
		var got []string
		for _, route := range Merge([]*Policy{newPolicy("p", TargetRef{}, toService("s", slices.Clone(rules)...))}, Client{}, "s").routes() {
			got = append(got, route.match.String())
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
	on := func(name, to string) Rule {
		return Rule{Matches: []Match{{Path: everyPath, Headers: []ValueMatch{{Name: name, Type: Present}}}}, BackendRefs: send(to)}
	}
	policies := []*Policy{
		newPolicy("owner", TargetRef{}, toService("s", on("a", "3"), on("b", "4"))),
		newPolicy("consumer", TargetRef{Kind: MeshService, Name: "frontend"}, toService("s", on("d", "1"), on("c", "2"))),
	}
	var got []string
	for _, r := range Merge(policies, frontend, "s").routes() {
		if r.rule != nil {
			got = append(got, r.rule.BackendRefs[0].Name)
		}
	}
	if diff := cmp.Diff([]string{"1", "2", "3", "4"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// fits is what the decision record says of matches, and nothing else.
func (m *Match) fits(path string, headers metadata.MD) bool {
	switch m.Path.Type {
	case Exact:
		if path != m.Path.Value {
			return false
		}
	case Prefix:
		covered, all := segments(m.Path.Value), segments(path)
		if len(covered) > len(all) || !slices.Equal(covered, all[:len(covered)]) {
			return false
		}
	default:
		if !regexp.MustCompile("^(?:" + m.Path.Value + ")$").MatchString(path) {
			return false
		}
	}
	if len(m.Methods) > 0 && !slices.Contains(m.Methods, "POST") || len(m.Query) > 0 {
		return false
	}
	for _, h := range m.Headers {
		value, there := strings.Join(headers[h.Name], ","), len(headers[h.Name]) > 0
		ok := map[MatchType]bool{
			Exact: there && value == h.Value, Prefix: there && strings.HasPrefix(value, h.Value), Present: there, Absent: !there,
			RegularExpression: there && h.Type == RegularExpression && regexp.MustCompile("^(?:"+h.Value+")$").MatchString(value),
		}[h.Type]
		if !ok {
			return false
		}
	}
	return true
}

// The property that translation is for: an RPC meets the rule that the record and the
// precedence say, also by the routes for clients of other implementations.
func TestRoutes_AnRPCMeetsItsRule(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	paths := []string{"/p.S/M", "/p.S/N", "/p.S", "/p.S/", "/p.ST/M", "/p/S", "/p", "/q/r", "/x/y", "/p.S/M/more"}
	hits := make(map[string]int)
	for range 150 {
		var rules []Rule
		in := Input{Services: []*Service{service("s")}}
		seen := make(map[string]bool)
		for i := range 1 + r.IntN(6) {
			rule := randomRule(r)
			rule.Matches = normalizeMatches(rule.Matches)
			if key := keyOf(rule.Matches); seen[key] {
				continue
			} else {
				seen[key] = true
			}
			rule.BackendRefs = send(fmt.Sprintf("b%d", i))
			rules = append(rules, rule)
			in.Services = append(in.Services, service(rule.BackendRefs[0].Name))
		}
		in.Policies = []*Policy{newPolicy("p", TargetRef{}, toService("s", rules...))}
		m := mustBuild(t, in, nil)
		host, other := hostFor(t, m.Routes(Client{}, "s")), hostFor(t, m.Routes(Client{Implementation: OtherGRPC}, "s"))
		merged, _ := m.Merged(Client{}, "s")
		for range 30 {
			path, md := pick(r, paths), metadata.MD{}
			for _, name := range []string{"h", "i"} {
				if r.IntN(2) == 0 {
					md[name] = []string{pick(r, []string{"x", "xy", "z"})}
				}
			}
			want := "s"
			for _, route := range merged.routes() {
				if route.match.fits(path, md) {
					if route.rule != nil {
						want = route.rule.BackendRefs[0].Name
					}
					break
				}
			}
			for _, host := range []*xdsresource.VirtualHost{host, other} {
				got := clusterOf(t, host.Route(matching.RPC{Method: path, Metadata: func() metadata.MD { return md }}))
				if got != want {
					t.Fatalf("an RPC for %s with %v goes to %s, want %s, by\n%v", path, md, got, want, merged)
				}
			}
			hits[want]++
		}
	}
	if len(hits) < 5 || hits["s"] == 0 {
		t.Errorf("the rules were hit like this, which is too few: %v", hits)
	}
}

// Everything that a rule can have, in resources that Envoy and dynxds accept.
func TestRoutes_EveryFieldIsAccepted(t *testing.T) {
	t.Parallel()
	text := policyText(`
    - matches:
      - {methods: [GET, POST], headers: [{name: a, type: RegularExpression, value: "x+"}, {name: b, value: ""}, {name: c, type: Prefix, value: x}, {name: d, type: Absent}, {name: e, type: Present}]}
      - {methods: [GET], queryParams: [{name: a, value: x}, {name: b, type: RegularExpression, value: "x+"}]}
      filters:
      - {requestHeaderModifier: {set: [{name: a, value: "100%"}, {name: b, value: ""}], add: [{name: c, value: d}], remove: [e]}}
      - {responseHeaderModifier: {set: [{name: a, value: b}], add: [{name: c, value: d}], remove: [e, f]}}
      - {requestMirror: {backendRef: {kind: MeshService, name: other}}}
      - {requestMirror: {backendRef: {kind: MeshServiceSubset, name: other, tags: {v: "1"}}}}
      - {urlRewrite: {hostname: example.com, path: {replaceFullPath: "/a.B/C\\D$1%"}}}
      backendRefs:
      - {kind: MeshService, name: s, weight: 3}
      - {kind: MeshServiceSubset, name: other, tags: {v: "1"}, weight: 0}
    - matches: [{path: {prefix: /r}}]
      filters: [{requestRedirect: {scheme: https, hostname: example.com, port: 1, statusCode: 308, path: {replacePrefixMatch: /x}}}]
`)
	for _, authority := range []string{"", "xds.example.com"} {
		m := mustBuild(t, Input{Policies: mustParse(t, "f", text), Services: []*Service{service("s"), service("other")}, Authority: authority}, nil)
		checkMesh(t, m)
		routes := hostFor(t, m.Routes(Client{}, "s")).Routes
		if len(routes) != 5 {
			t.Fatalf("got %d routes", len(routes))
		}
		first := routes[2]
		if got, _ := first.RewritePath("/any/path?q"); got != `/a.B/C\D$1%?q` {
			t.Errorf("the path becomes %q", got)
		}
		md := metadata.MD{"a": {"old"}, "c": {"old"}, "e": {"old"}}
		first.Headers.Request.Apply(md)
		if diff := cmp.Diff(metadata.MD{"a": {"100%"}, "b": {""}, "c": {"old", "d"}}, md); diff != "" {
			t.Errorf("request headers (-want +got):\n%s", diff)
		}
		if len(first.Mirrors) != 2 || len(first.Action.(*xdsresource.Forward).Clusters) != 1 || first.Rewrite.Authority != "example.com" {
			t.Errorf("got %+v", first)
		}
		redirect := routes[1].Action.(*xdsresource.Redirect)
		if got := redirect.Location(&routes[1].Match, &matching.RPC{Method: "/r/s", Authority: "old:80"}); got != "https://example.com:1/x/s" || redirect.HTTPStatus != 308 {
			t.Errorf("redirected with %d to %s", redirect.HTTPStatus, got)
		}
	}
}
