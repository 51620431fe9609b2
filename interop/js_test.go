package interop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/dynxds/dynxds/testutils"
)

// jsClient is a process of js/client.js.
type jsClient struct {
	lines  *bufio.Scanner
	stderr *os.File
}

// installed returns a folder with js/client.js and what it needs. The test is
// skipped where that cannot be had.
func installed(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("grpc-js is not tested: this machine has no %s", program)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"client.js", "package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join("js", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Skipf("grpc-js is not tested: npm cannot install it: %v\n%s", err, out)
	}
	return dir
}

func startJS(t *testing.T, dir string, bootstrap []byte) *jsClient {
	t.Helper()
	cmd := exec.Command("node", "client.js", "xds:///"+service)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GRPC_XDS_BOOTSTRAP_CONFIG="+string(bootstrap))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c := &jsClient{lines: bufio.NewScanner(stdout)}
	if c.stderr, err = os.CreateTemp(dir, "stderr"); err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = c.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_, _ = io.Copy(io.Discard, stdout)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the client: %v", err)
		}
		c.stderr.Close()
	})
	return c
}

// mustReach returns when the backend has answered ten RPCs in a row.
func (c *jsClient) mustReach(t *testing.T, want, after string) {
	t.Helper()
	end := time.Now().Add(testutils.TestTimeout)
	for inARow := 0; inARow < 10; {
		if !c.lines.Scan() {
			t.Fatalf("the client ended: %v\n%s", c.lines.Err(), c.errors())
		}
		var rpc struct{ Backend, Error string }
		if err := json.Unmarshal(c.lines.Bytes(), &rpc); err != nil {
			t.Fatal(err)
		}
		inARow++
		if rpc.Backend != want {
			inARow = 0
			if time.Now().After(end) {
				t.Fatalf("after %q: %+v, want %s\n%s", after, rpc, want, c.errors())
			}
		}
	}
}

func (c *jsClient) errors() []byte {
	text, err := os.ReadFile(c.stderr.Name())
	if err != nil {
		return []byte(err.Error())
	}
	return text
}

// TestGRPCJSAgainstOurControlPlane: given our control plane, when the xDS client of
// another language is its client, then it accepts everything and follows every
// change.
//
// grpc-js-xds rejects resources that are wrapped in
// envoy.service.discovery.v3.Resource, so that is not among the options.
func TestGRPCJSAgainstOurControlPlane(t *testing.T) {
	t.Parallel()
	dir := installed(t)
	for _, name := range []string{"as it is", "with NOT_FOUND errors"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startOurServer(t, ourOptions[name]...)
			client := startJS(t, dir, s.bootstrapForOthers())
			for _, step := range s.ourSteps() {
				step.change(t)
				client.mustReach(t, step.answering, step.name)
			}
			s.checkAccepted(t)
		})
	}
}
