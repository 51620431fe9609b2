package xdstest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/internal/await"
)

// State guards what a test waits for.
type State = await.State

// NoError ends the test if err is not nil. Like testing.TB.FailNow, it must be called
// from the goroutine that runs the test.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal fails the test if got is not want, as cmp.Diff compares them. what says what
// they are.
func Equal[T any](t testing.TB, what string, want, got T, opts ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Parallel runs a sub-test in parallel with others.
func Parallel(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		f(t)
	})
}
