package command

import (
	"context"
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
