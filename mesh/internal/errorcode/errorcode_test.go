package errorcode_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/errorcode"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// codesOf has the reader read a text, and returns the codes of its errors with their texts.
func codesOf(t *testing.T, text string, inBootstrap bool) (codes, errs []string) {
	t.Helper()
	var found []faults.Fault
	var err error
	if inBootstrap {
		_, err = bootstrap.Parse("", []byte(text))
	} else {
		dir := t.TempDir()
		xdstest.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600))
		var v *site.Validation
		if v, err = site.Validate(t.Context(), dir, ""); err == nil {
			for _, r := range v.Reports {
				if r.Severity == meshroute.Error {
					found = append(found, faults.Fault{Path: r.Path, Problem: r.Message})
				}
			}
		}
	}
	if several, ok := errors.AsType[*faults.Faults](err); ok {
		found = append(found, several.List...)
	} else {
		xdstest.NoError(t, err)
	}
	for _, f := range found {
		codes = append(codes, errorcode.Of(f, inBootstrap).ID)
		errs = append(errs, f.String())
	}
	return slices.Compact(codes), errs
}

func TestReadersFindTheExamples(t *testing.T) {
	t.Parallel()
	for _, c := range errorcode.All() {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			inBootstrap := c.ID[0] == 'B'
			_, examples, _ := strings.Cut(strings.ReplaceAll(c.Text, "\n    ", "\n"), "\n\nWrong:\n\n")
			wrong, right, _ := strings.Cut(examples, "\nRight:\n\n")
			if got, errs := codesOf(t, wrong, inBootstrap); !slices.Equal(got, []string{c.ID}) {
				t.Errorf("the wrong example has the codes %v:\n%s", got, strings.Join(errs, "\n"))
			}
			if got, errs := codesOf(t, right, inBootstrap); len(got) > 0 {
				t.Errorf("the right example has the codes %v:\n%s", got, strings.Join(errs, "\n"))
			}
			if errorcode.Find(strings.ToLower(c.ID)) == nil || !strings.HasPrefix(c.Text, c.ID+": "+c.Title+"\n") {
				t.Errorf("it has the text %s", c.Text)
			}
		})
	}
	if c := errorcode.Find("D9999"); c != nil {
		t.Errorf("D9999 is %v", c)
	}
}

// TestEveryErrorHasACode has errors of readers that no example has.
func TestEveryErrorHasACode(t *testing.T) {
	t.Parallel()
	for problem, want := range map[string]string{
		"a: the field \"rules\" is missing":                                            "D0207",
		"the policy has no name; add metadata: {name: …}":                              "D0207",
		"a: expected an integer from 1 to 9, found a list":                             "D0208",
		"a: expected a list, found nothing":                                            "D0207",
		"name and labels both name the service; keep one of the two":                   "D0209",
		"a: the name in the document is twice as long":                                 "D0299",
		"the document has no kind; add kind, which can be Service":                     "D0202",
		"outlierDetection: clients would reject it: max_ejection_percent is above 100": "D0303",
		"": "D0299",
	} {
		if got := errorcode.Of(faults.Fault{Problem: problem}, false).ID; got != want {
			t.Errorf("%q has the code %s, want %s", problem, got, want)
		}
	}
	for _, f := range []faults.Fault{{Problem: "not JSON: x"}, {Problem: "not JSON: x", Suggestion: "y"}} {
		if got := errorcode.Marked(f, true).String(); got != f.String()+" [B0101]" {
			t.Errorf("got %s", got)
		}
	}
}

// TestPageListsTheCodes compares docs/tasks/errors.md with the table.
func TestPageListsTheCodes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/tasks/errors.md")
	xdstest.NoError(t, err)
	got := regexp.MustCompile(`(?m)^\| <a id=.*$`).FindAllString(string(page), -1)
	var want []string
	for _, c := range errorcode.All() {
		want = append(want, "| <a id=\""+strings.ToLower(c.ID)+"\"></a>`"+c.ID+"` | "+c.Title+" |")
	}
	slices.Sort(want)
	xdstest.Equal(t, "what the page has", want, got)
}
