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
