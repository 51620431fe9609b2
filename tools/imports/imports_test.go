// Package imports has the rules of imports between the packages of this repository, as a test.
package imports

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/dynxds/dynxds"

// floors is the house from the ground up: each line has folders with all that is below them, but for folders below that have a
// line of their own. A package imports packages of its own folder and of lower floors.
// docs/internals/architecture.md describes what lives where.
var floors = []string{
	"proto",
	"internal", // what knows no client: values, names, limits, documents
	"dnsconfig xdsclient/dynparam xdsclient/internal/diskcache httpfilter",
	"internal/dynwire internal/channels internal/decision internal/filterchain",
	"xdsclient/bootstrap internal/grpcbridge",
	"xdsclient internal/kubepod",
	"internal/xdsresource internal/rpcmetrics",
	"internal/clustertls",
	"dpdswrapper configselector balancer httpfilter/extauthz httpfilter/extproc httpfilter/composite",
	"httpfilter/builtin",
	"resolver internal/livestate",
	".", // the plugin; nothing below imports what is above
	"observe mesh/internal/document",
	"mesh/internal/meshpolicy mesh/internal/access mesh/internal/planestate mesh/internal/styled mesh/internal/webguard mesh/internal/exit mesh/internal/quota mesh/internal/tlsfiles",
	"mesh/controlplane mesh/meshroute mesh/explain",
	"mesh/internal/clients",
	"mesh/relay testutils mesh/statuspage",
	"internal/xdstest",
	"mesh/meshtest",
	"mesh/internal", // what commands are made of
	"mesh/command mesh/kubernetes mesh/etcdtest mesh/examples",
	"cmd examples e2e interop tools",
}

// never has what a folder must not import besides. A path that ends in "/..." includes all below it.
var never = map[string][]string{
	"internal/matching": {"google.golang.org/protobuf/...", envoy + "..."},
	"internal/peercert": {"google.golang.org/grpc/..."},
	"xdsclient":         resources,
	"balancer":          {envoy + "config/..."},
	"resolver":          {envoy + "config/..."},
	"mesh/controlplane": {module + "/xdsclient"},
	"mesh/meshroute":    {module + "/xdsclient", "google.golang.org/grpc", "os"},
	"mesh/relay":        resources,
	"observe/oteltrace": {"go.opentelemetry.io/otel/sdk/..."},
}

const envoy = "github.com/envoyproxy/go-control-plane/envoy/"

var resources = []string{envoy + "config/listener/...", envoy + "config/route/...", envoy + "config/cluster/..."}

// TestImportsPointDown reads the imports of all modules in tools/go.work. Those of tests do not count.
func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", "list", "-f", "{{.ImportPath}}{{range .Imports}} {{.}}{{end}}", "work")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list, err)
	}
	lived := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		packages := strings.Fields(line)
		folder, floor := placeOf(packages[0])
		if floor < 0 {
			t.Errorf("%s has no floor: add its folder to tools/imports/imports_test.go", packages[0])
			continue
		}
		lived[folder] = true
		for _, imported := range packages[1:] {
			to, below := placeOf(imported)
			if to != folder && below >= floor {
				t.Errorf("%s (floor %d) imports %s (floor %d): imports point down", packages[0], floor, imported, below)
			}
			if slices.ContainsFunc(never[folder], func(path string) bool { return within(path, imported) }) {
				t.Errorf("%s must never import %s", packages[0], imported)
			}
		}
	}
	for folder := range strings.FieldsSeq(strings.Join(floors, " ")) {
		if !lived[folder] {
			t.Errorf("no package is in %s: take it out of tools/imports/imports_test.go", folder)
		}
	}
}

// placeOf returns the folder of floors that a package is in, and its floor; -1 for one of none, as those of other repositories.
func placeOf(path string) (folder string, floor int) {
	folder, floor = "", -1
	for i, line := range floors {
		for candidate := range strings.FieldsSeq(line) {
			pattern := module + "/" + candidate + "/..."
			if candidate == "." {
				pattern = module
			}
			if within(pattern, path) && len(candidate) > len(folder) {
				folder, floor = candidate, i
			}
		}
	}
	return folder, floor
}

// within reports whether an import path is the pattern, or, if that ends in "/...", the path before it or one below.
func within(pattern, path string) bool {
	prefix, below := strings.CutSuffix(pattern, "/...")
	return path == prefix || below && strings.HasPrefix(path, prefix+"/")
}
