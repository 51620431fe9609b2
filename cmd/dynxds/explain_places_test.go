package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/explain"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// lineAt reads the line of a place such as "owner.yaml:11", of the example's folder.
func lineAt(t *testing.T, place string) string {
	t.Helper()
	name, number, _ := strings.Cut(place, ":")
	text, err := os.ReadFile(filepath.Join(exampleMesh, name))
	xdstest.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > len(lines) {
		t.Fatalf("%q is not a line of the folder", place)
	}
	return strings.TrimSpace(lines[n-1])
}

// linesAt reads the lines of several places.
func linesAt(t *testing.T, places string) []string {
	t.Helper()
	var lines []string
	for place := range strings.SplitSeq(places, ", ") {
		lines = append(lines, lineAt(t, place))
	}
	return lines
}

const anyPath = "- path: {type: Prefix, value: /}"

// What explain says of a folder names the lines where it is written.
func TestExplainNamesTheLines(t *testing.T) {
	t.Parallel()
	out := runOK(t, "explain", "--json", exampleMesh, "xds:///backend", "/pkg.Service/Method", "--client", "service=frontend,version=v2")
	var e explain.Explanation
	xdstest.NoError(t, json.Unmarshal([]byte(out), &e))
	if len(e.Routes) != 1 || e.Routes[0].Action == nil || len(e.Routes[0].Action.Destinations) != 1 || len(e.Routes[0].Action.Headers) != 1 || len(e.Clusters) != 1 {
		t.Fatalf("the explanation is %s", out)
	}
	route, cluster := &e.Routes[0], &e.Clusters[0]
	for _, tc := range []struct {
		of, at string
		want   []string
	}{
		{"the route", route.At, []string{anyPath, anyPath}},
		{"its filters", route.Action.Headers[0].At, []string{"- type: RequestHeaderModifier"}},
		{"its backendRefs", route.Action.Destinations[0].At, []string{"- {kind: MeshServiceSubset, name: backend, tags: {version: v2}, weight: 1}"}},
		{"the Cluster", cluster.At, []string{"kind: Service"}},
		{"the endpoint", cluster.Assignment.Priorities[0].Localities[0].Endpoints[0].At, []string{"- address: 127.0.0.1:18052"}},
	} {
		if got := linesAt(t, tc.at); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %s is %q, want %q", tc.of, tc.at, got, tc.want)
		}
	}

	others := runOK(t, "explain", exampleMesh, "xds:///backend", "/pkg.Service/Method", "--client", "service=frontend,version=v1")
	for _, want := range []string{"90%  [owner.yaml:13]", "10%  [owner.yaml:13]"} {
		if !strings.Contains(others, want) {
			t.Errorf("the output for other clients does not have %q:\n%s", want, others)
		}
	}
	if got := lineAt(t, "owner.yaml:13"); !strings.Contains(got, "weight: 90") {
		t.Errorf("the backendRefs for other clients are at %q", got)
	}
}

// versions are what changes with each edit of the example, in explanations.
var versions = regexp.MustCompile(`version "[0-9a-f]{16}"`)

// The whole text, for the client with a policy of its own. After an edit that is meant, write what the
// test prints.
func TestExplanationOfTheExample(t *testing.T) {
	t.Parallel()
	out := runOK(t, "explain", exampleMesh, "--service", "backend", "/pkg.Service/Method", "--client", "service=frontend,version=v2")
	want, err := os.ReadFile(filepath.Join("testdata", "explain.txt"))
	xdstest.NoError(t, err)
	if got := versions.ReplaceAllString(out, `version "…"`); got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
