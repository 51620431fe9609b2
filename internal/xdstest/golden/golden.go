// Package golden compares what tests print with files in testdata. "go test -update" writes the files instead: read what has changed
// in them before you commit it. It is for tests only.
package golden

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

var update = flag.Bool("update", false, "write the files in testdata that tests compare with")

// Updating reports whether the files are written.
func Updating() bool { return *update }

// Read returns the text of a file.
func Read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	xdstest.NoError(t, err)
	return string(text)
}

// Check compares a file with what a test has printed, or writes it.
func Check(t testing.TB, file, printed string) {
	t.Helper()
	if *update {
		xdstest.NoError(t, os.WriteFile(file, []byte(printed), 0o644))
		return
	}
	xdstest.Equal(t, file+" (write it with -update)", strings.Split(Read(t, file), "\n"), strings.Split(printed, "\n"))
}
