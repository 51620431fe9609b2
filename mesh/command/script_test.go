package command

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
)

// versions of resources change with each edit of the example.
var versions = regexp.MustCompile(`version "[0-9a-f]{16}"`)

// TestCommands runs the command lines of testdata/commands.txt, whose head says what its lines mean, and compares what they print.
// "go test -run TestCommands -update" writes that: read what has changed.
func TestCommands(t *testing.T) {
	t.Parallel()
	const file = "testdata/commands.txt"
	other, certs := another.serve(t), makeCerts(t)
	printed, dir, document := "", "", ""
	for line := range strings.Lines(golden.Read(t, file)) {
		switch kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); {
		case kind == "|" || kind == "!" || kind == "exit":
			continue
		case kind == "==":
			dir, document = t.TempDir(), ""
		case kind == "--":
			document = strings.TrimSuffix(rest, " --")
			cmdtest.Write(t, dir, document, "")
		case kind == "$":
			document = ""
			line += runLine(t.Context(), rest, [][2]string{{"{dir}", dir}, {"{example}", exampleMesh}, {"{other}", other}, {"{certs}", certs}})
		case document != "":
			cmdtest.Write(t, dir, document, golden.Read(t, dir+"/"+document)+line)
		}
		printed += line
	}
	golden.Check(t, file, printed)
}

// runLine runs a command line with names in braces, and returns what it prints, with the names, and its exit status. Behind "~" stands a regular
// expression for the lines that matter.
func runLine(ctx context.Context, line string, names [][2]string) (printed string) {
	line, matter, _ := strings.Cut(line, " ~ ")
	for _, name := range names {
		line = strings.ReplaceAll(line, name[0], name[1])
	}
	var stdout, stderr strings.Builder
	exit := execute(ctx, arguments(line)[1:], &stdout, &stderr)
	add := func(mark, text string) {
		for line := range strings.Lines(text) {
			if regexp.MustCompile(matter).MatchString(line) {
				printed += strings.TrimSpace(mark+strings.TrimSuffix(line, "\n")) + "\n"
			}
		}
	}
	add("| ", stdout.String())
	add("! ", stderr.String())
	if exit != 0 {
		printed += fmt.Sprintln("exit", exit)
	}
	for _, name := range names {
		printed = strings.ReplaceAll(printed, name[1], name[0])
	}
	return versions.ReplaceAllString(printed, `version "…"`)
}
