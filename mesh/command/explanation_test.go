package command

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// versions change with each edit of the example; places have a file and a line of its folder.
var (
	versions = regexp.MustCompile(`version "[0-9a-f]{16}"`)
	places   = regexp.MustCompile(`([a-z]+\.yaml):(\d+)`)
)

// The whole text of explanations, with the text of each line that they name in place of its number: of a
// client with a policy of its own, and of another one. After an edit that is meant, write what the test prints.
func TestExplanationsOfTheExample(t *testing.T) {
	t.Parallel()
	for version, file := range map[string]string{"v2": "explain.txt", "v1": "explain-others.txt"} {
		out := runOK(t, "explain", exampleMesh, "--service", "backend", "/pkg.Service/Method", "--client", "service=frontend,version="+version)
		got := versions.ReplaceAllString(out, `version "…"`)
		got = places.ReplaceAllStringFunc(got, func(place string) string {
			parts := places.FindStringSubmatch(place)
			text, err := os.ReadFile(filepath.Join(exampleMesh, parts[1]))
			xdstest.NoError(t, err)
			lines := strings.Split(string(text), "\n")
			n, err := strconv.Atoi(parts[2])
			if err != nil || n < 1 || n > len(lines) {
				t.Fatalf("%q is not a line of the folder", place)
			}
			return parts[1] + ": " + strings.TrimSpace(lines[n-1])
		})
		want, err := os.ReadFile(filepath.Join("testdata", file))
		xdstest.NoError(t, err)
		if got != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
		}
	}
}
