package xdstest

import "testing"

// NoError ends the test if err is not nil. Like testing.TB.FailNow, it must be called
// from the goroutine that runs the test.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
