package command

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// startOnTerminal starts a command on a pseudoterminal of 30 lines and 100 columns, and returns what it writes there.
func startOnTerminal(t *testing.T, cmd *exec.Cmd) *os.File {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no pseudoterminals: ", err)
	}
	t.Cleanup(func() { control.Close() })
	var number, unlocked int32
	size := [4]uint16{30, 100}
	for request, argument := range map[uintptr]unsafe.Pointer{
		syscall.TIOCGPTN: unsafe.Pointer(&number), syscall.TIOCSPTLCK: unsafe.Pointer(&unlocked), syscall.TIOCSWINSZ: unsafe.Pointer(&size),
	} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, control.Fd(), request, uintptr(argument)); errno != 0 {
			t.Fatal(errno)
		}
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	xdstest.NoError(t, err)
	defer terminal.Close()
	cmd.Stdout = terminal
	xdstest.NoError(t, cmd.Start())
	return control
}

// onTerminal runs a command on a pseudoterminal, and returns what it writes there.
func onTerminal(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	text, _ := io.ReadAll(startOnTerminal(t, cmd)) // it ends with EIO when the process has ended
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, text)
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// A terminal gets colours, unless the environment forbids them.
func TestExplainOnATerminal(t *testing.T) {
	t.Parallel()
	explained := func(env ...string) string {
		cmd := command(t, "explain", exampleMesh, "--service", "backend", "/pkg.Service/Method", "--client", "service=frontend,version=v1")
		cmd.Env = append(cmd.Env, append([]string{"TERM=xterm", "NO_COLOR=", "CI="}, env...)...)
		return onTerminal(t, cmd)
	}
	plain := runOK(t, "explain", exampleMesh, "--service", "backend", "/pkg.Service/Method", "--client", "service=frontend,version=v1")
	coloured := explained()
	for _, want := range []string{"\x1b[1moutcome ", " taken by 100% of the RPCs", "\x1b[32m            127.0.0.1:18051  would be HEALTHY  "} {
		if !strings.Contains(coloured, want) {
			t.Errorf("the text lacks %q:\n%q", want, coloured)
		}
	}
	for _, variable := range []string{"CI=true", "TERM=dumb"} {
		xdstest.Equal(t, variable, plain, explained(variable))
	}
	xdstest.Equal(t, "without colours", plain, explained("NO_COLOR=1"))
}

// On a terminal the headings of the demo are bold.
func TestDemoOnATerminal(t *testing.T) {
	t.Parallel()
	cmd := command(t, "demo")
	cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=", "CI=")
	text := onTerminal(t, cmd)
	for _, want := range []string{"\x1b[1mStep 1 of 5: split 90/10\x1b[0m\n", "\x1b[32mObserved: ", "\x1b[32m5 of 5 steps observed, in "} {
		if !strings.Contains(text, want) {
			t.Errorf("the output lacks %q:\n%q", want, text)
		}
	}
}

// drawnAgain reads what is written on a terminal until it has a text.
func drawnAgain(t *testing.T, screen *os.File, want string) {
	t.Helper()
	var out strings.Builder
	for !strings.Contains(out.String(), want) {
		buffer := make([]byte, 4<<10)
		n, err := screen.Read(buffer)
		out.Write(buffer[:n])
		if err != nil {
			t.Fatalf("the output ends without %q:\n%q", want, out.String())
		}
	}
}

// With --watch an answer takes the place of the one before on a terminal.
func TestWatchOnATerminal(t *testing.T) {
	t.Parallel()
	cmd := command(t, "status", another.serve(t), "--watch=20ms")
	cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=1", "CI=")
	screen := startOnTerminal(t, cmd)
	drawnAgain(t, screen, "\x1b[5A\x1b[Jclient \"other\"\r\n")
	xdstest.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
}

// On a terminal "dynxds top" is drawn in place until an interrupt, which is its end; elsewhere it is printed once.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	p := startServe(t, exampleMesh, "--admin=:0")
	admin := strings.Trim(strings.TrimPrefix(p.pages("--admin"), "http://"), "/")
	const want = "0 client streams at 1 replica: 0 in sync, 0 behind, 0 refusing"
	xdstest.Equal(t, "elsewhere", want+"\n", runOK(t, "top", "--admin", admin, "--interval", "1s"))
	cmd := command(t, "top", "--admin", admin, "--interval", "20ms")
	cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=1", "CI=")
	screen := startOnTerminal(t, cmd)
	drawnAgain(t, screen, "\x1b[1A\x1b[J"+want+"\r\n")
	xdstest.NoError(t, cmd.Process.Signal(os.Interrupt))
	_, _ = io.Copy(io.Discard, screen) // it ends with EIO when the process has ended
	xdstest.NoError(t, cmd.Wait())
	p.drain()
}
