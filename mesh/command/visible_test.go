package command

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	adminpb "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
)

// nasty clears a screen, in the two ways that terminals know, changes the direction of writing, begins a line that
// this command might print, rings, and ends in half a character.
const nasty = "x\x1b[2J\u009b2J\u202e\r\nFORGED\x07\u200b\xe2\x80"

// noControl fails the test if a terminal would act on the text, or if nasty has begun a line in it.
func noControl(t *testing.T, what, text string) {
	t.Helper()
	for i, c := range text {
		if c != '\n' && c != '\t' && !unicode.IsPrint(c) {
			t.Errorf("%s: there is %U at byte %d of the output: %q", what, c, i, text)
			break
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "FORGED") {
			t.Errorf("%s: there is a forged line: %q", what, text)
		}
	}
}

// runNasty runs a command that has to print nasty, somewhere, in a visible form.
func runNasty(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	what := strings.Join(args[:1], " ")
	stdout, stderr, _ := run(t, args...)
	noControl(t, what, stdout)
	noControl(t, what, stderr)
	if !strings.Contains(stdout+stderr, "FORGED") {
		t.Errorf("%q does not print what is tested:\n%s%s", args, stdout, stderr)
	}
	return stdout
}

// Names of files and texts in them reach a terminal only in a visible form.
func TestHostileFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := strings.ReplaceAll(nasty, "/", "")
	write := func(text string) { cmdtest.Write(t, dir, name+".yaml", text) }
	const good = `kind: Service
name: backend
endpoints: [{address: '10.0.0.1:80'}]
---
kind: MeshHTTPRoute
metadata: {name: p}
spec:
  to:
  - targetRef: {kind: MeshService, name: backend}
    rules:
    - matches: [{path: {type: PathPrefix, value: /x}}]
      default: {backendRefs: [{kind: MeshService, name: gone}]}
---
kind: Resource
name: "c\u200b\e[2J\nFORGED"
resource:
  "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: "c\u200b\e[2J\nFORGED"
  alt_stat_name: "a\u202e\u200b"
  type: EDS
  eds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}
`
	write(good)
	runNasty(t, "validate", dir)
	runNasty(t, "render", dir, "--explain")
	runNasty(t, "render", dir, "--service", "no-such\x1b[2J\nFORGED")
	runNasty(t, "explain", dir, "--service", "backend", "/s/m")

	var document map[string]any
	for out, decode := range map[string]func([]byte, any) error{"yaml": yaml.Unmarshal, "json": json.Unmarshal} {
		// One document, of which FORGED is in a string.
		for part := range strings.SplitSeq(runNasty(t, "render", dir, "-o", out), map[string]string{"yaml": "---\n", "json": "\n"}[out]) {
			if err := decode([]byte(part), &document); part != "" && err != nil {
				t.Errorf("render -o %s: %v in\n%s", out, err, part)
			}
		}
	}
	var explained any
	if err := json.Unmarshal([]byte(runNasty(t, "explain", dir, "-o", "json", "--service", "backend", "/s/m")), &explained); err != nil {
		t.Error(err)
	}

	write(strings.Replace(good, "endpoints", "endpints", 1))
	for _, line := range []string{"validate DIR", "render DIR", "explain DIR --service backend /s/m"} {
		runNasty(t, strings.Fields(strings.ReplaceAll(line, "DIR", dir))...)
	}
}

// What another process says of itself reaches a terminal only in a visible form.
func TestHostileStatus(t *testing.T) {
	t.Parallel()
	text := strings.ToValidUTF8(nasty, "")
	listener := xdsmsg.Any(xdsmsg.DefaultListener("backend", "routes"+text))
	route := xdsmsg.Any(xdsmsg.RouteConfig("routes"+text, "backend", xdsmsg.PrefixRoute("/", "cluster"+text)))
	entry := func(url, name string, resource *anypb.Any) *statuspb.ClientConfig_GenericXdsConfig {
		return &statuspb.ClientConfig_GenericXdsConfig{
			TypeUrl: url, Name: name, VersionInfo: text, XdsConfig: resource, ClientStatus: adminpb.ClientResourceStatus_ACKED,
			ErrorState: &adminpb.UpdateFailureState{Details: text, VersionInfo: text},
		}
	}
	config := &statuspb.ClientConfig{
		Node: &corepb.Node{Id: text, Cluster: text, UserAgentName: text}, ClientScope: text,
		GenericXdsConfigs: []*statuspb.ClientConfig_GenericXdsConfig{
			entry(typeurl.Listener, "backend", listener), entry(typeurl.RouteConfiguration, "routes"+text, route),
			entry(typeurl.Cluster, "cluster"+text, nil), entry("type.googleapis.com/"+text, text, nil), entry(typeurl.Listener, text, nil),
		}}
	address := csdsFunc(func() (*statuspb.ClientConfig, error) { return config, nil }).serve(t)
	runNasty(t, "status", address)
	runNasty(t, "explain", address, "xds:///backend", "/s/m")
	runNasty(t, "explain", address, "xds:///nobody", "/s/m")
	var explained any
	if err := json.Unmarshal([]byte(runNasty(t, "explain", "-o", "json", address, "xds:///backend", "/s/m")), &explained); err != nil {
		t.Error(err)
	}
	refusing := csdsFunc(func() (*statuspb.ClientConfig, error) { return nil, status.Error(codes.Internal, text) }).serve(t)
	runNasty(t, "status", refusing)
	runNasty(t, "explain", refusing, "xds:///backend", "/s/m")
}

// past is what writes to the standard output and error past the writers that make text visible.
var past = regexp.MustCompile(`\b(os\.Std(out|err)|fmt\.Print(ln|f)?|log\.(Print|Fatal)(ln|f)?)\b`)

// Nothing in the command does, but main, which hands them over.
func TestNothingIsWrittenPastVisible(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	xdstest.NoError(t, err)
	found := 0
	for _, file := range files {
		if written := past.FindString(golden.Read(t, file)); written != "" && !strings.HasSuffix(file, "_test.go") {
			if found++; file != "main.go" {
				t.Errorf("%s: %s: write to cmd.OutOrStdout() or cmd.ErrOrStderr()", file, written)
			}
		}
	}
	if found == 0 {
		t.Error("not even main.go has them")
	}
}
