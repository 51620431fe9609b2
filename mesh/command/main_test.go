package command

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// runAsCommand makes the test binary the command, so that tests see its real
// exit status, signals included.
const runAsCommand = "DYNXDS_TEST_RUN_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(runAsProgram) != "" {
		mainProgram()
	}
	if os.Getenv(runAsCommand) != "" {
		Main()
	}
	os.Exit(m.Run())
}

// command is the command as a process of its own.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	xdstest.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), runAsCommand+"=1", "GRPC_GO_LOG_SEVERITY_LEVEL=")
	return cmd
}

// The demo ends by itself with exit status 0 and no log. Output to a pipe has no escape sequences.
func TestDemoForAPipe(t *testing.T) {
	t.Parallel()
	out, err := command(t, "demo").CombinedOutput()
	if err != nil {
		t.Fatalf("dynxds demo: %v\n%s", err, out)
	}
	if bytes.ContainsRune(out, '\x1b') {
		t.Errorf("the output has escapes: %q", out)
	}
	for _, want := range []string{"Step 1 of 5: split 90/10\n", "Step 5 of 5: ", "\nObserved: ", "\n5 of 5 steps observed, in "} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}

func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	cmd := command(t, "demo")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	xdstest.NoError(t, err)
	xdstest.NoError(t, cmd.Start())
	last := ""
	for lines := bufio.NewScanner(stdout); lines.Scan(); last = lines.Text() {
		if strings.Contains(lines.Text(), "Step 1 of 5: ") {
			xdstest.NoError(t, cmd.Process.Signal(os.Interrupt))
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("exit: %v, want status 1", err)
	}
	if want := "step 1 of 5 (split 90/10) was cut short: interrupt"; !strings.Contains(stderr.String(), want) {
		t.Errorf("standard error is %q, want %q", stderr.String(), want)
	}
	if !strings.Contains(last, ", 0 failed ") {
		t.Errorf("the last line is %q, want the summary", last)
	}
}

// Each command says in its help what its exit status means.
func TestHelpHasExitStatuses(t *testing.T) {
	t.Parallel()
	root := newRoot()
	for _, cmd := range append(root.Commands(), root) {
		if out := runOK(t, append(strings.Fields(cmd.CommandPath())[1:], "--help")...); !strings.Contains(out, "Exit status: 0 fine; 1 ") {
			t.Errorf("%s --help says nothing about it:\n%s", cmd.CommandPath(), out)
		}
	}
}
