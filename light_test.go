package dynxds_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// A program links nothing of the control plane and the tools around it, nor what these need, with the plugin and with what
// it may import beside it.
func TestProgramsLinkNothingOfTheTools(t *testing.T) {
	t.Parallel()
	never := append([]string{
		"github.com/dynxds/dynxds/mesh/", "github.com/dynxds/dynxds/cmd/", "github.com/dynxds/dynxds/testutils",
		"gopkg.in/yaml", "sigs.k8s.io/yaml",
	}, modulesOfTheTools...)
	checkListed(t, never, "-deps", "./observe/...", "./xdsclient/...")
	// The plugin alone lacks what those packages are for, too.
	never = append(never, "github.com/dynxds/dynxds/observe/", "github.com/dynxds/dynxds/internal/livestate", "go.opentelemetry.io/",
		"golang.org/x/oauth2", "google.golang.org/grpc/credentials/google", "google.golang.org/grpc/credentials/alts")
	checkListed(t, never, "-deps", ".")
}

// A program that imports the plugin has no modules in its go.mod and go.sum that only the tools need: it has none
// to which the plugin's go.mod does not lead.
func TestProgramsRequireNoModuleOfTheTools(t *testing.T) {
	t.Parallel()
	checkListed(t, modulesOfTheTools, "-m", "all")
}

// modulesOfTheTools are modules that only the control plane, commands and httpfilter/composite/cel need, each with many others.
var modulesOfTheTools = []string{
	"github.com/spf13/cobra", "github.com/spf13/pflag", "go.etcd.io/", "github.com/prometheus/client_golang", "go.uber.org/zap", "k8s.io/", "go.yaml.in/", "cel.dev/cel-go",
}

// checkListed reports the lines of "go list" that start with one of the paths.
func checkListed(t *testing.T, never []string, list ...string) {
	t.Helper()
	command := exec.Command("go", append([]string{"list"}, list...)...)
	// With a workspace the modules would be those of the command, too.
	command.Env = append(os.Environ(), "GOWORK=off")
	listed, err := command.Output()
	if failed, ok := err.(*exec.ExitError); ok {
		t.Fatalf("%v: %v\n%s", command, err, failed.Stderr)
	}
	xdstest.NoError(t, err)
	for line := range strings.Lines(string(listed)) {
		for _, path := range never {
			if strings.HasPrefix(line, path) {
				t.Errorf("%v has %s", command, strings.TrimSpace(line))
			}
		}
	}
}
