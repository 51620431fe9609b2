package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
)

// exampleMesh is the folder that examples/mesh/README.md serves.
const exampleMesh = "../../examples/mesh/config"

// run runs the command line in this process.
func run(t *testing.T, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	var out, err bytes.Buffer
	exit = execute(t.Context(), args, &out, &err)
	return out.String(), err.String(), exit
}

// runOK runs a command line that must succeed, and returns its output.
func runOK(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	stdout, stderr, exit := run(t, args...)
	if exit != 0 {
		t.Fatalf("%q: exit status %d: %s", args, exit, stderr)
	}
	return stdout
}

// process is "dynxds serve" or "dynxds relay" as a process of its own.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	log *bufio.Scanner
}

// startServe serves a folder until the test ends it.
func startServe(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return start(t, append([]string{"serve", dir, "--poll", "1h"}, args...)...)
}

// start starts a server, which the test ends.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	cmd := command(t, append([]string{args[0], "--listen", "localhost:0", "--log-format", "json"}, args[1:]...)...)
	stderr, err := cmd.StderrPipe()
	xdstest.NoError(t, err)
	xdstest.NoError(t, cmd.Start())
	return &process{t, cmd, bufio.NewScanner(stderr)}
}

// logged waits for a line of the log that has all of the texts.
func (p *process) logged(texts ...string) string {
	p.t.Helper()
	for p.log.Scan() {
		line, found := p.log.Text(), true
		for _, text := range texts {
			found = found && strings.Contains(line, text)
		}
		if found {
			return line
		}
	}
	p.t.Fatalf("the log ended without %q", texts)
	return ""
}

// address returns where the server can be reached, under the name localhost.
func (p *process) address() string {
	p.t.Helper()
	var serving struct{ Address string }
	xdstest.NoError(p.t, json.Unmarshal([]byte(p.logged(`ing","address":`)), &serving))
	_, port, err := net.SplitHostPort(serving.Address)
	xdstest.NoError(p.t, err)
	return net.JoinHostPort("localhost", port)
}

// pages returns the address of the pages of a flag, as the log says it.
func (p *process) pages(flag string) string {
	p.t.Helper()
	var page struct {
		URL  string
		Open bool
	}
	xdstest.NoError(p.t, json.Unmarshal([]byte(p.logged(`"flag":"`+flag+`"`)), &page))
	if !strings.HasPrefix(page.URL, "http://127.0.0.1:") || page.Open {
		p.t.Errorf("the pages of %s are at %s, open to others: %v, want loopback", flag, page.URL, page.Open)
	}
	return page.URL
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	xdstest.NoError(p.t, p.cmd.Process.Signal(s))
}

// drain ends the process by SIGTERM, and expects exit status 0.
func (p *process) drain() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	for p.log.Scan() {
		// The process must not wait for its log to be read.
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("after SIGTERM the command ended with %v, want exit status 0", err)
	}
}

// SIGHUP publishes a change at once; SIGTERM drains, with exit status 0.
func TestServe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmdtest.Write(t, dir, "a.yaml", "kind: Service\nname: a\n")
	p := startServe(t, dir)
	p.logged(`"msg":"published"`, `"version":1`)
	p.address()
	cmdtest.Write(t, dir, "b.yaml", "kind: Service\nname: b\n")
	p.signal(syscall.SIGHUP)
	p.logged(`"msg":"published"`, `"services":2`)
	cmdtest.Write(t, dir, "b.yaml", "kind: Service\nnme: b\n")
	p.signal(syscall.SIGHUP)
	p.logged(`"level":"ERROR"`, `b.yaml:2`, "did you mean")
	p.drain()
}

// What render prints is a folder from which it prints the same.
func TestRenderedResourcesAreAFolder(t *testing.T) {
	t.Parallel()
	first := runOK(t, "render", exampleMesh, "--client", "service=frontend,version=v1")
	dir := t.TempDir()
	cmdtest.Write(t, dir, "rendered.yaml", first)
	second := runOK(t, "render", dir)
	xdstest.Equal(t, "rendered again", first, second)
}
