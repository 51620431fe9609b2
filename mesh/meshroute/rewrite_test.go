package meshroute

import (
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// rewritten returns what becomes of a path by replacePrefixMatch, in dynxds. ok is
// false if the rule does not match.
func rewritten(t testing.TB, prefix, replacement, path string) (result string, ok bool) {
	t.Helper()
	rule := meshpolicy.Rule{
		Matches:     policytest.On(policytest.Prefix(prefix)),
		Filters:     []meshpolicy.Filter{{Type: meshpolicy.URLRewrite, Rewrite: &meshpolicy.Rewrite{Path: &meshpolicy.PathModifier{Value: replacement}}}},
		BackendRefs: policytest.Send("new"),
	}
	m := mustBuild(t, Input{
		Services: services("s", "new"),
		Policies: []*Policy{policytest.New("p", TargetRef{}, policytest.To("s", rule))},
	}, nil)
	route := hostFor(t, m.Routes(Client{}, "s")).Route(matching.RPC{Method: path})
	if clusterOf(t, route) != "new" {
		return path, false
	}
	result, valid := route.RewritePath(path)
	if !valid {
		t.Errorf("%s, %s → %s: %q is no path", path, prefix, replacement, result)
	}
	return result, true
}

// Gateway API, HTTPPathModifier.replacePrefixMatch: the table.
func TestReplacePrefixMatch_Table(t *testing.T) {
	t.Parallel()
	for _, test := range [][4]string{
		{"/foo/bar", "/foo", "/xyz", "/xyz/bar"},
		{"/foo/bar", "/foo", "/xyz/", "/xyz/bar"},
		{"/foo/bar", "/foo/", "/xyz", "/xyz/bar"},
		{"/foo/bar", "/foo/", "/xyz/", "/xyz/bar"},
		{"/foo", "/foo", "/xyz", "/xyz"},
		{"/foo/", "/foo", "/xyz", "/xyz/"},
		{"/foo/bar", "/foo", "", "/bar"},
		{"/foo/", "/foo", "", "/"},
		{"/foo", "/foo", "", "/"},
		{"/foo/", "/foo", "/", "/"},
		{"/foo", "/foo", "/", "/"},
		// And the prefix that matches everything.
		{"/foo/bar", "/", "/xyz", "/xyz/foo/bar"},
		{"/foo/bar", "/", "", "/foo/bar"},
		{"/foo/bar?q=/foo", "/foo", "/xyz", "/xyz/bar?q=/foo"},
	} {
		if got, ok := rewritten(t, test[1], test[2], test[0]); !ok || got != test[3] {
			t.Errorf("%s, prefix %s replaced with %q: got %q (%t), want %q", test[0], test[1], test[2], got, ok, test[3])
		}
	}
}

func segments(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// For every path, prefix and replacement: the rule matches if, and only if, the
// segments of the prefix are the first of the path, and then the result has the
// segments of the replacement and those left of the path; no slash is doubled or lost.
func TestReplacePrefixMatch_Property(t *testing.T) {
	t.Parallel()
	prefixes := []string{"/", "/a", "/a/", "/a/b", "/a/b/"}
	replacements := []string{"", "/", "/x", "/x/", "/x/y", "/x/y/"}
	paths := []string{"/", "/a", "/a/", "/ab", "/a/b", "/a/b/", "/a/bc", "/a/b/c", "/a/b/c/", "/c/a"}
	for _, prefix := range prefixes {
		for _, replacement := range replacements {
			for _, path := range paths {
				got, ok := rewritten(t, prefix, replacement, path)
				covered, all := segments(prefix), segments(path)
				fits := len(covered) <= len(all) && strings.Join(covered, "/") == strings.Join(all[:len(covered)], "/")
				if ok != fits {
					t.Fatalf("prefix %s matches %s: %t, want %t", prefix, path, ok, fits)
				}
				if !fits {
					continue
				}
				want := "/" + strings.Join(append(segments(replacement), all[len(covered):]...), "/")
				// A slash at the end stays, if it is not the only one.
				if strings.HasSuffix(path, "/") && want != "/" && len(all) > 0 || path == "/" && want != "/" {
					want += "/"
				}
				if got != want {
					t.Fatalf("%s, prefix %s replaced with %q: got %q, want %q", path, prefix, replacement, got, want)
				}
			}
		}
	}
}

// Gateway API, HTTPRequestRedirectFilter.
func TestRedirect_Location(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ redirect, path, want string }{
		{`{scheme: https}`, "/a/b", "https://host:443/a/b"},
		{`{scheme: https, port: 8443}`, "/a/b", "https://host:8443/a/b"},
		{`{hostname: other}`, "/a/b", "http://other/a/b"},
		{`{hostname: other, port: 1}`, "/a/b", "http://other:1/a/b"},
		{`{path: /c}`, "/a/b", "http://host:80/c"},
		{`{path: {replaceFullPath: /c}}`, "/a", "http://host:80/c"},
		{`{path: {replacePrefixMatch: /c/}}`, "/a/b", "http://host:80/c/b"},
		{`{path: {replacePrefixMatch: /c/}}`, "/a", "http://host:80/c"},
		{`{path: {replacePrefixMatch: ""}}`, "/a/b", "http://host:80/b"},
	} {
		p := policytest.Parse(t, "f", policytest.Text("    - {matches: {path: {prefix: /a}}, filters: [{requestRedirect: "+test.redirect+"}]}\n"))
		m := mustBuild(t, Input{Policies: p, Services: services("s")}, nil)
		rpc := matching.RPC{Method: test.path, Authority: "host:80"}
		route := hostFor(t, m.Routes(Client{}, "s")).Route(rpc)
		redirect, ok := route.Action.(*xdsresource.Redirect)
		if !ok {
			t.Fatalf("%s: the action is %+v", test.redirect, route.Action)
		}
		if got := redirect.Location(&route.Match, &rpc); got != test.want || redirect.HTTPStatus != 302 {
			t.Errorf("%s, %s: redirected with %d to %s, want 302 to %s", test.redirect, test.path, redirect.HTTPStatus, got, test.want)
		}
	}
}
