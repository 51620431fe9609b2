package meshpolicy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// Faults have their line, their path and, where there is one, a
// suggestion.
func TestParse_Faults(t *testing.T) {
	t.Parallel()
	const at = "spec.to[0].rules[0]"
	tests := []struct {
		given, text string
		then        []string
	}{
		{"an unknown field", policytest.Text("    - {matchs: []}"), []string{`f:7: ` + at + `: unknown field "matchs"; did you mean "matches"?`}},
		{"an unknown kind", "name: p\nspec:\n  targetRef: {kind: MeshServiceSubsets, name: a}\n  to: []\n", []string{
			`f:3: spec.targetRef.kind: unknown value "MeshServiceSubsets"; did you mean "MeshServiceSubset"?`,
			`f:4: spec.to: expected a list with at least one destination, found an empty list`,
		}},
		{"another kind of document", "kind: MeshTCPRoute\nname: p\nspec: {to: []}\n", []string{
			`f:1: kind: unknown value "MeshTCPRoute"; did you mean "MeshHTTPRoute"?`,
			`f:3: spec.to: expected a list with at least one destination, found an empty list`,
		}},
		{"no name, no spec", "kind: MeshHTTPRoute\n", []string{
			`f:1: the field "spec" is missing`, `f:1: the policy has no name; add metadata: {name: …}`,
		}},
		{"two names", "name: a\nmetadata: {name: b}\nspec: {to: [{targetRef: {kind: Mesh}, rules: [{}]}]}\n", []string{
			`f:2: metadata.name: the name differs from that at the top, "a"; keep one of the two`,
		}},
		{"a name with a blank", "name: a b\nspec: {to: [{targetRef: {kind: Mesh}, rules: [{}]}]}\n", []string{
			`f:1: name: "a b" cannot be a name; use letters, digits and, inside, - _ .`,
		}},
		{"a Mesh with a name, a MeshService without one", "name: a\nspec:\n  targetRef: {kind: Mesh, name: x}\n  to: [{targetRef: {kind: MeshService}, rules: [{}]}]\n", []string{
			`f:3: spec.targetRef.name: a Mesh has no name; leave it out, or use kind MeshService`,
			`f:4: spec.to[0].targetRef: a MeshService needs the field "name"`,
		}},
		{"a MeshService with tags, a MeshSubset without", "name: a\nspec:\n  targetRef: {kind: MeshService, name: x, tags: {a: b}}\n  to: [{targetRef: {kind: Mesh}, rules: [{}]}]\n---\n" +
			"name: b\nspec:\n  targetRef: {kind: MeshSubset, tags: {}}\n  to: [{targetRef: {kind: Mesh}, rules: [{}]}]\n", []string{
			`f:3: spec.targetRef.tags: a MeshService has no tags; use kind MeshServiceSubset or MeshSubset`,
			`f:8: spec.targetRef.tags: a MeshSubset needs at least one tag`,
		}},
		{"the reserved tag", "name: a\nspec:\n  targetRef: {kind: MeshSubset, tags: {specificity: b}}\n  to: [{targetRef: {kind: Mesh}, rules: [{}]}]\n", []string{
			`f:3: spec.targetRef.tags.specificity: "specificity" is what variants of resources are ordered by, and cannot be a tag; rename the tag`,
		}},
		{"the tag that implementations decide", "name: a\nspec:\n  targetRef: {kind: MeshSubset, tags: {xds_routes: b}}\n  to: [{targetRef: {kind: Mesh}, rules: [{}]}]\n", []string{
			`f:3: spec.targetRef.tags.xds_routes: "xds_routes" says what a client's implementation takes, and cannot be a tag; rename the tag`,
		}},
		{"the service as a tag", "name: a\nspec:\n  targetRef: {kind: MeshSubset, tags: {service: b}}\n  to: [{targetRef: {kind: Mesh}, rules: [{}]}]\n", []string{
			`f:3: spec.targetRef.tags.service: "service" is the service itself, and cannot be a tag; use kind MeshService or MeshServiceSubset with a name`,
		}},
		{"a subset as a destination", "name: a\nspec:\n  to: [{targetRef: {kind: MeshSubset, tags: {a: b}}, rules: [{}]}]\n", []string{
			`f:3: spec.to[0].targetRef.kind: unknown value "MeshSubset"; it can be Mesh, MeshService`,
		}},
		{"a destination twice", "name: a\nspec:\n  to:\n  - {targetRef: {kind: Mesh}, rules: [{}]}\n  - {targetRef: {kind: Mesh}, rules: [{}]}\n", []string{
			`f:5: spec.to[1]: the destination is that of to[0]; join their rules`,
		}},
		{"rules twice, and not at all", "name: a\nspec:\n  to:\n  - {targetRef: {kind: Mesh}, rules: [{}], default: {rules: [{}]}}\n  - {targetRef: {kind: MeshService, name: s}}\n", []string{
			`f:4: spec.to[0].default: rules and default.rules say the same thing; keep one of the two`,
			`f:5: spec.to[1]: the field "rules" is missing`,
		}},
		{"matches that occur twice, in other words", policytest.Text("    - matches: [{path: {type: Prefix, value: /a/}, headers: [{name: X, value: a}, {name: y, type: Present}]}]\n" +
			"    - matches: {path: {prefix: /a}, headers: [{name: Y, type: Present}, {type: Exact, name: x, value: a}]}\n"), []string{
			`f:8: spec.to[0].rules[1]: the matches are those of rules[0]; join the two`,
		}},
		{"a rule for everything twice", policytest.Text("    - {}\n    - {matches: [{}]}\n"), []string{
			`f:8: spec.to[0].rules[1]: the matches are those of rules[0]; join the two`,
		}},
		{"paths", policytest.Text("    - matches:\n      - {path: {type: exact, value: a}}\n      - {path: {type: Prefix, value: a}}\n      - {path: {type: Exact, value: \"/a?b\"}}\n      - {path: {type: RegularExpression, value: \"(\"}}\n      - {path: {prefix: /a, value: /b}}\n"), []string{
			`f:8: ` + at + `.matches[0].path.type: unknown value "exact"; did you mean "Exact"?`,
			`f:9: ` + at + `.matches[1].path.value: a path starts with /, and "a" does not; put a / before it`,
			`f:10: ` + at + `.matches[2].path.value: the path "/a?b" has a character that paths do not have`,
			"f:11: " + at + ".matches[3].path.value: \"(\" is not a regular expression of RE2: error parsing regexp: missing closing ): `(`; see https://github.com/google/re2/wiki/Syntax",
			`f:12: ` + at + `.matches[4].path: prefix has no other field beside it; write type and value`,
		}},
		{"a regular expression that is too large", policytest.Text("    - {matches: [{path: {regularExpression: '/[[:^alpha:]]{900}\\pL{100}'}}]}"), []string{
			`f:7: ` + at + `.matches[0].path.regularExpression: the regular expression "/[[:^alpha:]]{900}\\pL{100}" is too large; repetitions multiply`,
		}},
		{"methods", policytest.Text("    - {matches: [{methods: [post]}, {methods: []}]}"), []string{
			`f:7: ` + at + `.matches[0].methods[0]: unknown value "post"; did you mean "POST"?`,
			`f:7: ` + at + `.matches[1].methods: no method is in the list; leave the field out to match every method`,
		}},
		{"conditions on headers", policytest.Text("    - matches:\n      - headers: [{name: a, type: Absent, value: b}, {name: b}, {name: \"c d\", value: e}, {name: f, type: Prefix, value: \"\"}]\n"), []string{
			`f:8: ` + at + `.matches[0].headers[0].value: a condition of type Absent has no value; leave it out`,
			`f:8: ` + at + `.matches[0].headers[1]: a condition of type Exact needs the field "value"`,
			`f:8: ` + at + `.matches[0].headers[2].name: "c d" cannot be the name of a header`,
			`f:8: ` + at + `.matches[0].headers[3].value: every value starts with the empty prefix; use type Present`,
		}},
		{"conditions that contradict one another", policytest.Text("    - matches:\n      - headers: [{name: a, value: x}, {name: A, value: y}]\n      - queryParams: [{name: a, value: x}, {name: a, value: y}]\n      - headers: [{name: a, type: Absent}, {name: a, type: Present}]\n"), []string{
			`f:8: ` + at + `.matches[0].headers: nothing can match both "a Exact x" and "a Exact y"; use two matches if either will do`,
			`f:9: ` + at + `.matches[1].queryParams: nothing can match both "a Exact x" and "a Exact y"; use two matches if either will do`,
			`f:10: ` + at + `.matches[2].headers: nothing can match both "a Absent" and "a Present"; use two matches if either will do`,
		}},
		{"a prefix of a query parameter", policytest.Text("    - {matches: [{queryParams: [{name: a, type: Prefix, value: b}]}]}"), []string{
			`f:7: ` + at + `.matches[0].queryParams[0].type: unknown value "Prefix"; it can be Exact, RegularExpression`,
		}},
		{"destinations", policytest.Text("    - backendRefs: [{kind: MeshServiceSubset, name: a}, {kind: Mesh}, {kind: MeshService, name: a, weight: -1}, {kind: MeshService, nam: a}]\n"), []string{
			`f:7: ` + at + `.backendRefs[0]: a MeshServiceSubset needs the field "tags"`,
			`f:7: ` + at + `.backendRefs[1].kind: unknown value "Mesh"; it can be MeshService, MeshServiceSubset`,
			`f:7: ` + at + `.backendRefs[2].weight: expected an integer from 0 to 4294967295, found the number "-1"`,
			`f:7: ` + at + `.backendRefs[3]: unknown field "nam"; did you mean "name"?`,
			`f:7: ` + at + `.backendRefs[3]: a MeshService needs the field "name"`,
		}},
		{"weights", policytest.Text("    - {backendRefs: [{kind: MeshService, name: a, weight: 0}]}\n    - {matches: {path: {prefix: /a}}, backendRefs: [{kind: MeshService, name: a, weight: 4294967295}, {kind: MeshService, name: b}]}\n"), []string{
			`f:8: spec.to[0].rules[1].backendRefs: the weights add up to 4294967296, more than 4294967295`,
		}},
		{"filters", policytest.Text("    - filters: [{type: URLRewrite}, {}, {type: RequestMirror, urlRewrite: {hostname: a}}, {urlRewrite: {}}]\n"), []string{
			`f:7: ` + at + `.filters[0]: a filter of type URLRewrite needs the field "urlRewrite"`,
			`f:7: ` + at + `.filters[1]: the filter does nothing; add one of requestHeaderModifier, responseHeaderModifier, requestMirror, requestRedirect, urlRewrite`,
			`f:7: ` + at + `.filters[2].type: the type is RequestMirror, but the field is that of a URLRewrite`,
			`f:7: ` + at + `.filters[3].urlRewrite: the filter does nothing; add hostname or path`,
			`f:7: ` + at + `.filters[3]: a rule has at most one URLRewrite; join the two`,
		}},
		{"two things in one filter", policytest.Text("    - filters: [{urlRewrite: {hostname: a}, requestMirror: {backendRef: {kind: MeshService, name: a}}}]\n"), []string{
			`f:7: ` + at + `.filters[0].urlRewrite: a filter does one thing, and this one is a RequestMirror already; make two filters of them`,
		}},
		{"header edits", policytest.Text("    - filters: [{requestHeaderModifier: {set: [{name: A, value: x}], add: [{name: a, value: y}], remove: [\":path\", Host, \"a b\", 1]}}, {responseHeaderModifier: {set: [{name: b, value: \"\\n\"}]}}]\n"), []string{
			`f:7: ` + at + `.filters[0].requestHeaderModifier.add[0].name: the header "a" is edited twice; keep one of them`,
			`f:7: ` + at + `.filters[0].requestHeaderModifier.remove[0]: the header ":path" cannot be edited; use URLRewrite for path and host`,
			`f:7: ` + at + `.filters[0].requestHeaderModifier.remove[1]: the header "host" cannot be edited; use URLRewrite for path and host`,
			`f:7: ` + at + `.filters[0].requestHeaderModifier.remove[2]: "a b" cannot be the name of a header`,
			`f:7: ` + at + `.filters[0].requestHeaderModifier.remove[3]: expected a string, found the number "1"; put it in quotes: "1"`,
			`f:7: ` + at + `.filters[1].responseHeaderModifier.set[0].value: "\n" has a character that values of headers do not have`,
		}},
		{"redirects", policytest.Text("    - filters: [{requestRedirect: {scheme: ftp, port: 0, statusCode: 200}}]\n"), []string{
			`f:7: ` + at + `.filters[0].requestRedirect.scheme: unknown value "ftp"; it can be http, https`,
			`f:7: ` + at + `.filters[0].requestRedirect.port: expected an integer from 1 to 65535, found the number "0"`,
			`f:7: ` + at + `.filters[0].requestRedirect.statusCode: a redirect has the status 301, 302, 303, 307 or 308, not 200`,
			`f:7: ` + at + `.filters[0].requestRedirect: the redirect leads back to where it comes from; add scheme, hostname, path or port`,
		}},
		{"a redirect and what cannot be beside it", policytest.Text("    - filters: [{requestRedirect: {hostname: a}}, {urlRewrite: {hostname: a}}]\n      backendRefs: [{kind: MeshService, name: a}]\n"), []string{
			`f:7: ` + at + `.filters: a request that is redirected (RequestRedirect) is not sent on, so URLRewrite has nothing to do`,
			`f:8: ` + at + `.backendRefs: a request that is redirected (RequestRedirect) goes to no backend; leave one of the two out`,
		}},
		{"changes of the path", policytest.Text("    - filters: [{urlRewrite: {hostname: \"a:1\", path: {replaceFullPath: a, replacePrefixMatch: b}}}]\n    - {matches: {path: {exact: /a}}, filters: [{urlRewrite: {path: {type: ReplaceFullPath, replacePrefixMatch: /}}}]}\n"), []string{
			`f:7: ` + at + `.filters[0].urlRewrite.hostname: "a:1" is not a hostname; write a name without a port`,
			`f:7: ` + at + `.filters[0].urlRewrite.path: exactly one of replaceFullPath and replacePrefixMatch is needed`,
			`f:8: spec.to[0].rules[1].filters[0].urlRewrite.path.type: the type is ReplaceFullPath, but the field is the other one`,
			`f:8: spec.to[0].rules[1].filters: replacePrefixMatch needs matches by Prefix, as only these have a prefix to replace; use replaceFullPath, or path matches of type Prefix`,
		}},
	}
	for _, test := range tests {
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			_, err := meshpolicy.Parse("f", []byte(test.text))
			var faults *document.Faults
			if !errors.As(err, &faults) {
				t.Fatalf("the error is %v", err)
			}
			policytest.Equal(t, "faults", test.then, strings.Split(err.Error(), "\n"))
		})
	}
}

// One faulty policy does not take the others of its file along.
func TestParse_KeepsWhatIsGood(t *testing.T) {
	t.Parallel()
	text := "name: a\nspec: {to: [{targetRef: {kind: Mesh}, rules: [{}]}]}\n---\nname: 1\n---\n{\"name\": \"c\", \"spec\": {\"to\": [{\"targetRef\": {\"kind\": \"Mesh\"}, \"rules\": [{}]}]}}\n"
	policies, err := meshpolicy.Parse("f", []byte(text))
	var got []string
	for _, p := range policies {
		got = append(got, p.Name+" "+p.Source.String())
	}
	if diff := cmp.Diff([]string{"a f:1", "c f:6"}, got); diff != "" || err == nil {
		t.Errorf("the error is %v (-want +got):\n%s", err, diff)
	}
}

// Both forms that Kuma has for a resource, and both places for rules.
func TestParse_Forms(t *testing.T) {
	t.Parallel()
	forms := []string{
		"type: MeshHTTPRoute\nname: p\nmesh: default\nspec:\n  targetRef: {kind: Mesh}\n  to: [{targetRef: {kind: MeshService, name: s}, rules: [{backendRefs: [{kind: MeshService, name: a}]}]}]\n",
		"apiVersion: kuma.io/v1alpha1\nkind: MeshHTTPRoute\nmetadata: {name: p, namespace: n, labels: {a: b}, annotations: {c: d}}\nspec:\n" +
			"  to: [{targetRef: {kind: MeshService, name: s}, default: {rules: [{matches: [], backendRefs: [{kind: MeshService, name: a, weight: 1}]}]}}]\n",
	}
	if p := policytest.Parse(t, "f", "metadata: {name: p}\n"+forms[0])[0]; p.Name != "p" {
		t.Errorf("with one name twice it is %q", p.Name)
	}
	first := policytest.Parse(t, "f", forms[0])[0]
	second := policytest.Parse(t, "f", forms[1])[0]
	if first.Name != second.Name || first.TargetKey() != second.TargetKey() || first.To[0].Digest() != second.To[0].Digest() {
		t.Errorf("got %+v and %+v", first, second)
	}
}

// A part of a document with one fault has one fault reported.
func TestParse_OneFault(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 254)
	const rest = "spec: {to: [{targetRef: {kind: Mesh}, rules: [{}]}]}\n"
	to := func(to string) string { return "name: p\nspec: {to: " + to + "}\n" }
	clients := func(ref string) string {
		return "name: p\nspec: {targetRef: " + ref + ", to: [{targetRef: {kind: Mesh}, rules: [{}]}]}\n"
	}
	rule := func(rule string) string { return policytest.Text("    - " + rule + "\n") }
	filter := func(filter string) string { return rule("{filters: [" + filter + "]}") }
	match := func(match string) string { return rule("{matches: [" + match + "]}") }
	for _, test := range []struct{ text, want string }{
		{"- a\n", `expected an object`},
		{"name: 1\n" + rest, `name: expected a string`},
		{"name: " + long + "\n" + rest, `name: this has 254 bytes, and a name at most 253`},
		{"name: p\nmesh: other\n" + rest, `mesh: unknown value "other"`},
		{"name: p\nlabels: {kuma.io/mesh: dev}\n" + rest, `labels.kuma.io/mesh: unknown value "dev"; it can be default`},
		{"name: p\nlabels: {a: 1}\n" + rest, `labels.a: expected a string`},
		{"metadata: {name: p, labels: {kuma.io/mesh: dev}}\n" + rest, `metadata.labels.kuma.io/mesh: unknown value "dev"; it can be default`},
		{"name: p\napiVersion: kuma.io/v2\n" + rest, `apiVersion: unknown value "kuma.io/v2"`},
		{"metadata: {name: p, namespace: 1}\n" + rest, `metadata.namespace: expected a string`},
		{"metadata: {name: p, labels: {a: 1}}\n" + rest, `metadata.labels.a: expected a string`},
		{"metadata: {name: p, annotations: {a: 1}}\n" + rest, `metadata.annotations.a: expected a string`},
		{to("1"), `spec.to: expected a list`},
		{to("[{targetRef: {kind: Mesh}, rules: 1}]"), `spec.to[0].rules: expected a list`},
		{to("[{targetRef: {kind: Mesh}, rules: []}]"), `spec.to[0].rules: expected a list with at least one rule, found an empty list`},
		{clients("{kind: Mesh, proxyTypes: [Car]}"), `targetRef.proxyTypes[0]: unknown value "Car"`},
		{clients("{kind: Mesh, sectionName: 1}"), `targetRef.sectionName: expected a string`},
		{clients("{kind: Mesh, labels: {a: b}}"), `targetRef.labels: a Mesh has no labels; use kind Dataplane`},
		{clients("{kind: Dataplane, labels: {}}"), `targetRef.labels: a MeshSubset needs at least one tag`},
		{clients("{kind: 1}"), `targetRef.kind: expected a string`},
		{clients("{kind: Bad, name: a}"), `targetRef.kind: unknown value "Bad"`},
		{clients("{kind: MeshService, name: a, tags: {}}"), `targetRef.tags: a MeshService has no tags`},
		{clients("{kind: MeshSubset, tags: 1}"), `targetRef.tags: expected an object`},
		{clients("{kind: MeshSubset, tags: {-a: b}}"), `"-a" cannot be the name of a tag`},
		{clients("{kind: MeshSubset, tags: {" + long + ": b}}"), `cannot be the name of a tag`},
		{match("{path: {type: Prefix, value: 1}}"), `path.value: expected a string`},
		{match(`{path: {prefix: "/#"}}`), `the path "/#" has a character`},
		{match(`{path: {prefix: "/a b"}}`), `the path "/a b" has a character`},
		{match(`{path: {prefix: "/\x7f"}}`), `the path "/\x7f" has a character`},
		{match("{methods: 1}"), `methods: expected a list`},
		{match("{headers: [{name: '', type: Present}]}"), `"" cannot be the name of a header`},
		{match("{headers: [{name: 'a{', type: Present}]}"), `"a{" cannot be the name of a header`},
		{match("{headers: [{name: 'a/', type: Present}]}"), `"a/" cannot be the name of a header`},
		{match("{headers: [{name: 'a:', type: Present}]}"), `"a:" cannot be the name of a header`},
		{match("{headers: [{name: a, type: exact}]}"), `headers[0].type: unknown value "exact"`},
		{match("{headers: [{name: a, type: Prefix, value: 1}]}"), `headers[0].value: expected a string`},
		{match("{headers: [{name: a, type: RegularExpression, value: (}]}"), `"(" is not a regular expression`},
		{match("{headers: [{name: a, type: RegularExpression, value: ''}]}"), `a regular expression has from 1 to 8192 bytes, this one has 0`},
		{match("{headers: [{name: a, type: RegularExpression, value: '" + regex(1_999) + "'}]}"), `is too large`},
		{match(`{headers: [{name: a, value: "b\nc"}]}`), `headers[0].value: "b\nc" has a character that values of headers do not have`},
		{match(`{headers: [{name: a, type: Prefix, value: "b\n"}]}`), `headers[0].value: "b\n" has a character that values of headers do not have`},
		{match("{queryParams: [{name: 1, value: b}]}"), `queryParams[0].name: expected a string`},
		{match("{queryParams: [{name: '', value: b}]}"), `"" cannot be the name of a query parameter`},
		{match("{queryParams: [{name: 'a b', value: b}]}"), `"a b" cannot be the name of a query parameter`},
		{match(`{queryParams: [{name: "\x7f", value: b}]}`), `"\x7f" cannot be the name of a query parameter`},
		{filter("1"), `filters[0]: expected an object`},
		{filter("{type: Bad}"), `filters[0].type: unknown value "Bad"`},
		{filter("{type: Bad, urlRewrite: {hostname: a}}"), `filters[0].type: unknown value "Bad"`},
		{filter("{requestHeaderModifier: {}}"), `requestHeaderModifier: the filter does nothing; add set, add or remove`},
		{filter("{requestHeaderModifier: 1}"), `requestHeaderModifier: expected an object`},
		{filter(`{requestHeaderModifier: {set: [{name: a, value: "\x7f"}]}}`), `"\x7f" has a character that values of headers do not have`},
		{filter("{requestRedirect: 1}"), `requestRedirect: expected an object`},
		{filter("{requestRedirect: {path: a}}"), `a path starts with /, and "a" does not`},
		{filter("{urlRewrite: 1}"), `urlRewrite: expected an object`},
		{filter("{urlRewrite: {hostname: 1}}"), `hostname: expected a string`},
		{filter("{urlRewrite: {hostname: ''}}"), `"" is not a hostname`},
		{filter("{urlRewrite: {hostname: 'a b'}}"), `"a b" is not a hostname`},
		{filter(`{urlRewrite: {hostname: "\x7f"}}`), `"\x7f" is not a hostname`},
		{filter("{urlRewrite: {path: 1}}"), `path: expected an object`},
		{filter("{urlRewrite: {path: {replaceFullPath: 1}}}"), `replaceFullPath: expected a string`},
		{filter("{urlRewrite: {path: {replaceFullPath: ''}}}"), `a path starts with /, and "" does not`},
		{filter("{urlRewrite: {path: {replacePrefixMatch: a}}}"), `a path starts with /, and "a" does not`},
		{filter("{urlRewrite: {path: {type: ReplacePrefixMatch, replaceFullPath: /}}}"), `the type is ReplacePrefixMatch, but the field is the other one`},
		{filter("{requestMirror: {backendRef: {kind: MeshService, name: a, weight: 0}}}"), `unknown field "weight"`},
		{rule("{matches: {path: {exact: /a}}, filters: [{requestRedirect: {path: {replacePrefixMatch: /b}}}]}"), `replacePrefixMatch needs matches by Prefix`},
		{rule("{backendRefs: [{kind: MeshService, name: a, port: 0}]}"), `port: expected an integer from 1`},
		{rule("{backendRefs: [{kind: Bad, tags: {a: b}}]}"), `kind: unknown value "Bad"`},
	} {
		policies, err := meshpolicy.Parse("f", []byte(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") || len(policies) > 0 {
			t.Errorf("%s\ngives %v, %v, want %s", test.text, policies, err, test.want)
		}
	}
}

// regex has 18,002 instructions and n more.
func regex(n int) string { return strings.Repeat("a{1000}", 6) + strings.Repeat("b", n) }

// What is at the edge of the rules is right.
func TestParse_Edges(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		"{matches: [{path: {prefix: '/!~'}}]}":                                                                                                  "path Prefix /!~\n",
		"{matches: [{headers: [{name: a0Z9b, value: ''}]}]}":                                                                                    "header a0z9b Exact\n",
		"{matches: [{headers: [{name: a, value: b}, {name: a, type: Prefix, value: c}]}]}":                                                      "header a Exact b, header a Prefix c\n",
		"{matches: [{headers: [{name: a, type: Prefix, value: c}, {name: a, value: b}]}]}":                                                      "header a Exact b, header a Prefix c\n",
		"{matches: [{queryParams: [{name: a, value: 'b\u00e9'}]}]}":                                                                             "query a Exact b\u00e9\n",
		"{backendRefs: [{kind: MeshService, name: t, weight: 0}]}":                                                                              "                 t, weight 0\n",
		"{matches: [{queryParams: [{name: '!~', value: b}]}]}":                                                                                  "query !~ Exact b\n",
		"{matches: [{headers: [{name: a, type: RegularExpression, value: '" + regex(1_998) + "'}]}]}":                                           "header a RegularExpression a{1000}",
		"{matches: [{headers: [{name: a, type: RegularExpression, value: '" + strings.Repeat("c", 8192) + "'}]}]}":                              "header a RegularExpression ccc",
		"{filters: [{requestHeaderModifier: {set: [{name: a, value: ' ~'}]}}]}":                                                                 `RequestHeaderModifier set a=" ~"` + "\n",
		"{filters: [{requestMirror: {backendRef: {kind: MeshService, name: t}}}, {requestMirror: {backendRef: {kind: MeshService, name: u}}}]}": "RequestMirror u\n",
		"{filters: [{requestRedirect: {hostname: '!~'}}], backendRefs: []}":                                                                     "RequestRedirect 302, hostname !~\n",
		"{filters: [{requestRedirect: {scheme: http}}]}":                                                                                        "RequestRedirect 302, scheme http\n",
		"{filters: [{requestRedirect: {port: 1}}]}":                                                                                             "RequestRedirect 302, port 1\n",
		"{matches: {path: {exact: /a}}, filters: [{requestRedirect: {path: /b}}]}":                                                              `RequestRedirect 302, path replaceFullPath "/b"` + "\n",
		"{matches: {path: {prefix: /a}}, filters: [{urlRewrite: {path: {replacePrefixMatch: ''}}}]}":                                            `URLRewrite, path replacePrefixMatch ""` + "\n",
		"{filters: [{urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /a}}}]}":                                                       `URLRewrite, path replaceFullPath "/a"` + "\n",
		"{backendRefs: [{kind: MeshService, name: t, weight: 4294967295}]}":                                                                     "                 t\n",
		"{backendRefs: [{kind: MeshServiceSubset, name: t, tags: {" + strings.Repeat("a", 253) + ": " + strings.Repeat("b", 253) + "}}]}":       "bbb}\n",
		"{backendRefs: [{kind: MeshServiceSubset, name: t, tags: {kuma.io/service: u}}]}":                                                       "                 t{kuma.io/service=u}\n",
	} {
		policies, err := meshpolicy.Parse("f", []byte(policytest.Text("    - "+rule+"\n")))
		if err != nil {
			t.Errorf("%s gives %v", rule, err)
			continue
		}
		if got := policytest.Merge(policies, meshpolicy.Client{}, "s").String(); !strings.Contains(got, want) {
			t.Errorf("%s is explained as\n%s\nwant\n%s", rule, got, want)
		}
	}
}
