package interop_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/gocp"
	"github.com/dynxds/dynxds/testutils"
)

// "dynxds doctor" follows the way of an RPC through the servers of others: go-control-plane, in each way that it answers, and an
// agent such as Istio's.
func TestDoctorOfOthers(t *testing.T) {
	t.Parallel()
	examine := func(t *testing.T, bootstrap []byte, want ...string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "bootstrap.json")
		xdstest.NoError(t, os.WriteFile(file, bootstrap, 0o600))
		out, err := exec.CommandContext(testutils.Context(t), buildCommand(t), "doctor", "xds:///"+service, "--bootstrap", file).CombinedOutput()
		for _, text := range append(want, "✓ ADS", "✓ Listener", "✓ cluster", "none failed") {
			if err != nil || !strings.Contains(string(out), text) {
				t.Fatalf("%v, without %q:\n%s", err, text, out)
			}
		}
	}
	for _, mode := range gocp.Modes {
		xdstest.Parallel(t, "go-control-plane, "+mode.String(), func(t *testing.T) {
			w := &world{control: gocp.Start(t, mode), blue: testutils.StartBackend(t, "blue"), green: testutils.StartBackend(t, "green")}
			w.control.Set(t, w.initial()...)
			examine(t, w.control.Bootstrap(), w.blue.Addr()+": connected, plaintext")
		})
	}
	xdstest.Parallel(t, "an agent", func(t *testing.T) {
		a := startAgent(t)
		a.Set(t, a.initial()...)
		examine(t, a.bootstrap(), a.blue.Addr()+": connected, plaintext")
	})
}
