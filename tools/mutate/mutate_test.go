package main

import (
	"regexp"
	"strings"
	"testing"
)

// Given a package whose tests see some faults and not others, when its mutants are tried, then
// the survivors are those that the tests do not see, tests that never end have seen a fault, and
// a line whose mutants do not compile is said to have none. A test that sees only what another sees is needless.
func TestMutate(t *testing.T) {
	t.Parallel()
	want := `tested.go:11: survived: > for >=: n >= limit
tested.go:19: not reached: always false: n == 0
tested.go:19: not reached: always true: n == 0
tested.go:20: not reached: left out: total++
tested.go: no mutants of lines [26], since one does not compile
github.com/dynxds/dynxds/tools/mutate/testdata/tested: 8 of 12 mutants died (2 by the time limit), 66.7 %
tested_test.go:15: needless: TestFew, 7 lines, kills 1 that others kill
7 lines of tests are needless
`
	if got := mutated(t, "", true); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// Given a pattern of lines, when mutants are tried, then only those of these lines are.
func TestMutateSomeLines(t *testing.T) {
	t.Parallel()
	want := `tested.go:20: not reached: left out: total++
github.com/dynxds/dynxds/tools/mutate/testdata/tested: 1 of 2 mutants died (0 by the time limit), 50.0 %
`
	if got := mutated(t, `^tested\.go:(12|20)$`, false); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func mutated(t *testing.T, files string, needless bool) string {
	t.Helper()
	var out strings.Builder
	o := options{
		dir: ".", pkg: "./testdata/tested", packages: []string{"./testdata/tested"},
		files: regexp.MustCompile(files), needless: needless, parallel: 2, procs: 1, out: &out,
	}
	if err := mutate(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
