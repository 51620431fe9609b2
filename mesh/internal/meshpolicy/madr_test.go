package meshpolicy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// The examples of the decision record (MeshTrafficRoute, accepted), heading by
// heading. Those in testdata/madr are as the record has them.

var frontend = meshpolicy.Client{Service: "frontend"}

// rulesOf returns the rules of a merged policy as sorted texts.
func rulesOf(m meshpolicy.Merged) []string {
	var list []string
	for _, r := range m.Rules {
		list = append(list, meshpolicy.Key([]any{r.Matches, r.Filters, r.BackendRefs}))
	}
	slices.Sort(list)
	return list
}

func readTestdata(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// resultIn is the rules of a result that the record prints. These have no name.
func resultIn(t *testing.T, file string) []string {
	t.Helper()
	text := readTestdata(t, file)
	if !strings.Contains(text, "metadata:") {
		text = "name: result\n" + text
	}
	policies := policytest.Parse(t, file, text)
	return rulesOf(meshpolicy.Part{Policy: policies[0]}.Merged())
}

// "Decision Outcome": the outline of a policy. Rules stand below an entry of "to", with or
// without "default" (as under "Merging behavior"). A "default" beside "to", which the
// outline's indentation has, would be for no destination.
func TestRecord_Outline(t *testing.T) {
	t.Parallel()
	const head = "name: p\nspec:\n targetRef: {kind: Mesh}\n to:\n  - targetRef: {kind: MeshService, name: backend}\n"
	const rules = "rules: [{matches: [{path: {type: Exact, value: /v1}}]}]"
	plain := policytest.Parse(t, "p", head+"    "+rules+"\n")
	nested := policytest.Parse(t, "p", head+"    default: {"+rules+"}\n")
	for _, policies := range [][]*meshpolicy.Policy{plain, nested} {
		merged := policytest.Merge(policies, frontend, "backend").String()
		if !strings.Contains(merged, "path Exact /v1") {
			t.Errorf("got\n%s\nwant the rule", merged)
		}
	}
	policytest.Equal(t, "rules with default against those without", rulesOf(meshpolicy.Part{Policy: plain[0]}.Merged()), rulesOf(meshpolicy.Part{Policy: nested[0]}.Merged()))
	_, err := meshpolicy.Parse("p", []byte(head+"    "+rules+"\n default: {"+rules+"}\n"))
	if want := `p:7: spec: unknown field "default"; it can be targetRef, to`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// "Surprising behavior of top level default", the second pair: rules are merged by
// the structural equality of their matches.
func TestRecord_RulesAreMergedByMatches(t *testing.T) {
	t.Parallel()
	policies := policytest.Parse(t, "madr.yaml", readTestdata(t, "madr/by-matches.yaml"))
	merged := policytest.Merge(policies, frontend, "backend")
	policytest.Equal(t, "rules, against the record's result", resultIn(t, "madr/by-matches-result.yaml"), rulesOf(merged))
	want := `path Prefix /v2
    matches      policy consumer (madr.yaml:44), policy owner (madr.yaml:22)
    filters      policy consumer (madr.yaml:47)
                 RequestHeaderModifier add env="dev"
    backendRefs  policy consumer (madr.yaml:52)
                 backend{version=v2}
path Prefix /v1
    matches      policy owner (madr.yaml:13)
    backendRefs  policy owner (madr.yaml:16)
                 backend{version=v1}
any path
    backendRefs  no policy: the service itself
`
	policytest.Equal(t, "the explanation", want, merged.String())
	others := policytest.Merge(policies, meshpolicy.Client{Service: "other"}, "backend")
	policytest.Equal(t, "for clients that are not frontend, against the owner's rules", rulesOf(meshpolicy.Part{Policy: policies[0]}.Merged()), rulesOf(others))
}

// The same heading, the first pair: the rule for /v1 is not removed for frontend,
// which would surprise.
func TestRecord_NoSurprise(t *testing.T) {
	t.Parallel()
	policies := policytest.Parse(t, "madr.yaml", readTestdata(t, "madr/surprising.yaml"))
	got := rulesOf(policytest.Merge(policies, frontend, "backend"))
	surprising := resultIn(t, "madr/surprising-naive-result.yaml")
	if len(surprising) != 1 || len(got) != 2 || !slices.Contains(got, surprising[0]) {
		t.Errorf("got %v, want %v and the owner's rule for /v1", got, surprising)
	}
}

// "Additional use cases": the consumer's filters and backendRefs replace the
// owner's.
func TestRecord_TheConsumerOverridesTheOwner(t *testing.T) {
	t.Parallel()
	policies := slices.Concat(
		policytest.Parse(t, "owner.yaml", readTestdata(t, "madr/owner.yaml")),
		policytest.Parse(t, "consumer.yaml", readTestdata(t, "madr/consumer.yaml")))
	merged := policytest.Merge(policies, frontend, "backend")
	// In the record's result frontend and backend are called svc_b and svc_a.
	want := resultIn(t, "madr/owner-and-consumer-result.yaml")
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "svc_a", "backend")
	}
	policytest.Equal(t, "rules, against the record's result", want, rulesOf(merged))
	explained := `path Prefix /
    matches      policy consumer (consumer.yaml:14), policy owner (owner.yaml:13)
    filters      policy consumer (consumer.yaml:17)
                 RequestHeaderModifier add x-client=""
    backendRefs  policy consumer (consumer.yaml:22)
                 backend{version=v1}
`
	policytest.Equal(t, "the explanation", explained, merged.String())
	explained = `path Prefix /
    matches      policy owner (owner.yaml:13)
    filters      policy owner (owner.yaml:16)
                 ResponseHeaderModifier add x-some-header="something"
    backendRefs  policy owner (owner.yaml:21)
                 backend{version=v1}, weight 90
                 backend{version=v2}, weight 10
`
	policytest.Equal(t, "the explanation for other clients", explained, policytest.Merge(policies, meshpolicy.Client{}, "backend").String())
}

// ruleText puts a rule into a policy, as it stands in the record's outlines.
func ruleText(rule string) string {
	return "name: p\nspec:\n  targetRef: {kind: Mesh}\n  to:\n  - targetRef: {kind: MeshService, name: svc_name}\n    rules:\n    - " +
		strings.ReplaceAll(strings.TrimSpace(rule), "\n", "\n      ") + "\n"
}

// "Spec" under "Matching", with each alternative that the outline names.
func TestRecord_EveryMatch(t *testing.T) {
	t.Parallel()
	rule := policytest.Parse(t, "p", ruleText(`
matches:
 - methods:
    - GET
    - POST
   path:
    type: RegularExpression
    value: "/v[12]/.*"
   headers:
    - {type: RegularExpression, name: A, value: "x+"}
    - {type: Exact, name: B, value: x}
    - {type: Prefix, name: C, value: x}
    - {type: Absent, name: D}
    - {type: Present, name: E}
   queryParams:
    - {type: RegularExpression, name: A, value: "x+"}
    - {type: Exact, name: B, value: x}
 - path: {type: Exact, value: /v1}
 - path: {type: Prefix, value: /v2/}
`))[0].To[0].Rules[0]
	want := []string{
		"path Exact /v1",
		"path Prefix /v2",
		"path RegularExpression /v[12]/.*, method GET|POST, header a RegularExpression x+, header b Exact x, header c Prefix x, " +
			"header d Absent, header e Present, query A RegularExpression x+, query B Exact x",
	}
	var got []string
	for _, m := range rule.Matches {
		got = append(got, m.String())
	}
	slices.Sort(got)
	policytest.Equal(t, "matches", want, got)
}

// "Request modification", with each alternative that the outline names.
func TestRecord_EveryFilter(t *testing.T) {
	t.Parallel()
	text := func(filters string) []string {
		var list []string
		for _, f := range policytest.Parse(t, "p", ruleText("filters:\n"+filters))[0].To[0].Rules[0].Filters {
			list = append(list, f.String())
		}
		return list
	}
	got := text(`
 - type: RequestHeaderModifier
   requestHeaderModifier:
    set:
     - name: A
       value: b
    add:
     - name: C
       value: d
    remove:
     - "E"
 - type: ResponseHeaderModifier
   responseHeaderModifier:
    set:
     - name: A
       value: b
    add:
     - name: C
       value: d
    remove:
     - E
 - type: RequestMirror
   requestMirror:
    backendRef:
     kind: MeshService
     name: svc_name
 - type: RequestRedirect
   requestRedirect:
    scheme: https
    hostname: example.com
    path: /x
    port: 8443
    statusCode: 301
`)
	got = append(got, text(`
 - type: URLRewrite
   urlRewrite:
    hostname: example.com
    path:
     replaceFullPath: /x
`)...)
	got = append(got, text(`
 - type: URLRewrite
   urlRewrite:
    path:
     replacePrefixMatch: /x
`)...)
	want := []string{
		`RequestHeaderModifier set a="b" add c="d" remove e`,
		`ResponseHeaderModifier set a="b" add c="d" remove e`,
		`RequestMirror svc_name`,
		`RequestRedirect 301, scheme https, hostname example.com, port 8443, path replaceFullPath "/x"`,
		`URLRewrite, hostname example.com, path replaceFullPath "/x"`,
		`URLRewrite, path replacePrefixMatch "/x"`,
	}
	policytest.Equal(t, "filters", want, got)
}

// "Routing".
func TestRecord_BackendRefs(t *testing.T) {
	t.Parallel()
	policies := policytest.Parse(t, "p", ruleText(`
backendRefs:
  - weight: 90
    kind: MeshServiceSubset
    name: svc_name
    tags:
      version: v2
  - weight: 10
    kind: MeshServiceSubset
    name: svc_name_other
    tags:
      version: v2
`))
	want := "any path\n    matches      policy p (p:7)\n    backendRefs  policy p (p:8)\n" +
		"                 svc_name{version=v2}, weight 90\n                 svc_name_other{version=v2}, weight 10\n"
	policytest.Equal(t, "the explanation", want, policytest.Merge(policies, meshpolicy.Client{}, "svc_name").String())
}

// "Gateway API": ExtensionRef is how its routes could carry more. There are no
// extensions.
func TestRecord_ExtensionRefIsRefused(t *testing.T) {
	t.Parallel()
	_, err := meshpolicy.Parse("p", []byte(ruleText(`
matches: []
filters:
  - type: ExtensionRef
    extensionRef:
      group: kuma.io/v1alpha1
      kind: RouteConfig
      name: load-balancer-common
backendRefs: []
`)))
	for _, want := range []string{`p:9: spec.to[0].rules[0].filters[0].type: unknown value "ExtensionRef"`, `unknown field "extensionRef"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in the error:\n%v", want, err)
		}
	}
}
