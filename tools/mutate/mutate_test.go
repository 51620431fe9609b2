package main

import (
	"strings"
	"testing"
)

// Given a package whose tests see some faults and not others, when its mutants are tried, then
// the survivors are those that the tests do not see.
func TestMutate(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := mutate(t.Context(), options{dir: ".", pkg: "./testdata/tested", tests: []string{"./testdata/tested"}, parallel: 2, out: &out}); err != nil {
		t.Fatal(err)
	}
	want := `tested.go:9: survived: > for >=: n >= limit
tested.go:17: not reached: always false: n == 0
tested.go:17: not reached: always true: n == 0
tested.go:18: not reached: left out: total++
github.com/dynxds/dynxds/tools/mutate/testdata/tested: 5 of 9 mutants died, 55.6 %
`
	if got := out.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
