package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// The command writes what a program gets by dynxds.KubernetesBootstrap, and says what a pod lacks. No other test runs beside it, as it
// sets the environment of the process.
func TestBootstrapInPod(t *testing.T) {
	dir := t.TempDir()
	for name, value := range map[string]string{
		"POD_NAME": "frontend-1", "POD_NAMESPACE": "shop", "NODE_NAME": "node-1", "DYNXDS_SERVER": "dynxds.example:1",
		"DYNXDS_TOKEN_FILE": filepath.Join(dir, "token"), "DYNXDS_CA_FILE": filepath.Join(dir, "ca.crt"),
	} {
		t.Setenv(name, value)
	}
	_, stderr, exit := run(t, "bootstrap", "--kubernetes")
	if _, err := dynxds.KubernetesBootstrap(); err == nil || exit != 1 || !strings.Contains(stderr, "token: no such file") || !strings.Contains(stderr, "ca.crt: no such file") {
		t.Errorf("without files: exit status %d, %s, and error %v; want 1, and both files", exit, stderr, err)
	}
	for _, name := range []string{"token", "ca.crt"} {
		xdstest.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	want, err := dynxds.KubernetesBootstrap()
	xdstest.NoError(t, err)
	xdstest.Equal(t, "what the command prints", string(want), runOK(t, "bootstrap", "--kubernetes"))
	file := filepath.Join(dir, "bootstrap.json")
	xdstest.Equal(t, "what the command prints beside a file", "", runOK(t, "bootstrap", "--kubernetes", "--file", file))
	got, err := os.ReadFile(file)
	xdstest.NoError(t, err)
	xdstest.Equal(t, "what the file has", string(want), string(got))
	with := runOK(t, "bootstrap", "--kubernetes", "--server", "other:1", "--metadata", "version=v2", "--feature", "delta")
	for _, text := range []string{`"other:1"`, `"version": "v2"`, `"namespace": "shop"`, `"delta"`} {
		if !strings.Contains(with, text) {
			t.Errorf("with flags the bootstrap is\n%s\nwant %s", with, text)
		}
	}
}
