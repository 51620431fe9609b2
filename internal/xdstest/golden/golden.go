// Package golden compares what tests print with files in testdata. "go test -update" writes the files instead: read what has changed
// in them before you commit it. It is for tests only.
package golden

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

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

// Scripts carries out the scripts in files, each section of which is a parallel subtest in a synctest bubble of its own, and begins with
// "== NAME" and ends with an empty line. A line is a step and, behind "->", what step returned after it, unless that is empty; or a comment behind "#".
// begin returns the step of a section.
func Scripts(t *testing.T, files string, width int, begin func(testing.TB) (step func(string) string)) {
	t.Parallel()
	all, err := filepath.Glob(files)
	xdstest.NoError(t, err)
	for _, file := range all {
		lines := strings.Split(Read(t, file), "\n")
		got := slices.Clone(lines)
		t.Cleanup(func() { Check(t, file, strings.Join(got, "\n")) }) // after the subtests
		for i, line := range lines {
			if !strings.HasPrefix(line, "== ") {
				continue
			}
			t.Run(line[3:], func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					step := begin(t)
					for j := i + 1; j < len(lines) && lines[j] != ""; j++ {
						if strings.HasPrefix(lines[j], "#") {
							continue
						}
						words := strings.TrimSpace(strings.Split(lines[j], "->")[0])
						got[j] = words
						if after := step(words); after != "" {
							got[j] = fmt.Sprintf("%-*s -> %s", width, words, after)
						}
					}
				})
			})
		}
	}
}

// output matches what a case has behind "->".
var output = regexp.MustCompile(`(?m)^(->.*\n)+`)

// Cases prints the cases in files again. A file has sections, "== NAME", of cases: lines of input, and behind "->" the lines that run
// returns for the section's name and the input.
func Cases(t testing.TB, files string, run func(section, input string) string) {
	t.Helper()
	all, err := filepath.Glob(files)
	xdstest.NoError(t, err)
	for _, file := range all {
		var printed []string
		for section := range strings.SplitSeq(strings.TrimPrefix(Read(t, file), "== "), "\n== ") {
			name, text, _ := strings.Cut(section, "\n")
			lines := []string{"== " + name}
			for _, input := range output.Split(text+"\n", -1) {
				if input = strings.Trim(input, "\n"); input != "" {
					lines = append(lines, input, strings.TrimSpace("-> "+strings.ReplaceAll(strings.TrimSpace(run(name, input)), "\n", "\n-> ")))
				}
			}
			printed = append(printed, strings.Join(lines, "\n")+"\n")
		}
		Check(t, file, strings.Join(printed, "\n"))
	}
}

var repeated = regexp.MustCompile(`<<([^<>]+)\*(\d+)>>`)

// Repeat writes out what a text repeats: "<<a#*3>>" is "a0a1a2".
func Repeat(text string) string {
	for repeated.MatchString(text) { // one may be in another
		text = repeated.ReplaceAllStringFunc(text, func(match string) string {
			var all strings.Builder
			parts := repeated.FindStringSubmatch(match)
			n, _ := strconv.Atoi(parts[2])
			if !strings.Contains(parts[1], "#") {
				return strings.Repeat(parts[1], n)
			}
			for i := range n {
				all.WriteString(strings.ReplaceAll(parts[1], "#", strconv.Itoa(i)))
			}
			return all.String()
		})
	}
	return text
}
