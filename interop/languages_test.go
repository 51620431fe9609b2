package interop_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// language is gRPC in another language: a program that makes RPCs and says what came
// of them.
type language struct {
	name string
	// install makes what the program needs, in a folder of its own, or skips the test
	// and says why. It returns the folder and the beginning of the command line.
	install func(t *testing.T) (dir string, command []string)
	// options are of the control plane, those that the language can tell apart.
	// grpc-js-xds rejects resources that are wrapped in
	// envoy.service.discovery.v3.Resource.
	options []string
}

var languages = []language{
	{"grpc-js", installJS, []string{"as it is", "with NOT_FOUND errors"}},
	{"C-core", installPython, []string{"as it is", "with NOT_FOUND errors", "with resources wrapped"}},
}

func installJS(t *testing.T) (dir string, command []string) {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("grpc-js is not tested: this machine has no %s", program)
		}
	}
	dir = t.TempDir()
	for _, name := range []string{"client.js", "package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join("js", name))
		xdstest.NoError(t, err)
		xdstest.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Skipf("grpc-js is not tested: npm cannot install it: %v\n%s", err, out)
	}
	return dir, []string{"node", "client.js"}
}

// systemPython is the Python that Debian's python3-grpcio is for. Others, which come
// first in PATH, may have other versions of gRPC, or none.
const systemPython = "/usr/bin/python3"

func installPython(t *testing.T) (dir string, command []string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), systemPython, "-c", "import grpc").CombinedOutput(); err != nil {
		t.Skipf("C-core is not tested: %s has no grpc, which is in Debian's package python3-grpcio: %v\n%s", systemPython, err, out)
	}
	return "python", []string{systemPython, "client.py"}
}

// eachLanguage runs a test with a way to start clients of each language.
func eachLanguage(t *testing.T, test func(t *testing.T, l language, start startClient)) {
	t.Parallel()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			dir, command := l.install(t)
			test(t, l, func(t *testing.T, target string, bootstrap []byte, calls ...otherCall) *otherClient {
				t.Helper()
				list, err := json.Marshal(calls)
				xdstest.NoError(t, err)
				cmd := exec.Command(command[0], append(command[1:len(command):len(command)], target, string(list))...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "GRPC_XDS_BOOTSTRAP_CONFIG="+string(bootstrap))
				return startOther(t, cmd)
			})
		})
	}
}

// TestOtherLanguagesAgainstOurControlPlane: given our control plane, when the xDS client
// of another language is its client, then it accepts everything and follows every
// change.
func TestOtherLanguagesAgainstOurControlPlane(t *testing.T) {
	eachLanguage(t, func(t *testing.T, l language, start startClient) {
		for _, name := range l.options {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := startOurServer(t, ourOptions[name])
				client := start(t, "xds:///"+service, s.bootstrapForOthers(), emptyCall)
				for _, step := range s.ourSteps() {
					step.change(t)
					client.mustReach(t, step.answering, step.name)
				}
				s.checkAccepted(t)
			})
		}
	})
}
