package interop_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// otherCall is an RPC that a client of another language makes over and over.
type otherCall struct {
	Name     string            `json:"name"`
	Method   string            `json:"method"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

var emptyCall = otherCall{Name: "empty", Method: "/grpc.testing.TestService/EmptyCall"}

// otherRPC is what came of one.
type otherRPC struct {
	Call, Backend, Error string
	Code                 int
}

// outcome is the backend that answered, or the code.
func (r otherRPC) outcome() string {
	if r.Code != 0 {
		return fmt.Sprint("code ", r.Code)
	}
	return r.Backend
}

// otherClient is a process that makes RPCs, which a goroutine counts: the process never
// waits for the test.
type otherClient struct {
	stderr string
	// news holds a token after every RPC.
	news chan struct{}

	mu sync.Mutex
	// last is the last RPC of each call, and inARow how many of that outcome there were
	// in a row.
	last   map[string]otherRPC
	inARow map[string]int
	failed []otherRPC
	ended  error
}

// startClient starts a client of one language.
type startClient func(t *testing.T, target string, bootstrap []byte, calls ...otherCall) *otherClient

// startOther starts the process. It ends with the test, by itself.
func startOther(t *testing.T, cmd *exec.Cmd) *otherClient {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	xdstest.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	xdstest.NoError(t, err)
	stderr, err := os.CreateTemp(t.TempDir(), "stderr")
	xdstest.NoError(t, err)
	defer stderr.Close()
	cmd.Stderr = stderr
	xdstest.NoError(t, cmd.Start())
	c := &otherClient{stderr: stderr.Name(), news: make(chan struct{}, 1), last: map[string]otherRPC{}, inARow: map[string]int{}}
	var reading sync.WaitGroup
	reading.Go(func() { c.read(stdout) })
	t.Cleanup(func() {
		stdin.Close()
		reading.Wait()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the client: %v\n%s", err, c.errors())
		}
	})
	return c
}

// read counts RPCs until the process ends.
func (c *otherClient) read(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var rpc otherRPC
		err := json.Unmarshal(lines.Bytes(), &rpc)
		c.count(rpc, err)
	}
	c.count(otherRPC{}, fmt.Errorf("the process ended: %w", io.EOF))
}

func (c *otherClient) count(rpc otherRPC, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		c.ended = err
	case rpc.outcome() == c.last[rpc.Call].outcome():
		c.inARow[rpc.Call]++
	default:
		c.inARow[rpc.Call] = 1
	}
	c.last[rpc.Call] = rpc
	if rpc.Code != 0 {
		c.failed = append(c.failed, rpc)
	}
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// mustReach returns when emptyCall was answered by the backend ten times in a row, from
// now on.
func (c *otherClient) mustReach(t *testing.T, backend, after string) {
	t.Helper()
	c.mu.Lock()
	c.inARow[emptyCall.Name] = 0
	c.mu.Unlock()
	c.mustBe(t, emptyCall.Name, backend, after)
}

// mustBe returns when the outcome of a call was this ten times in a row.
func (c *otherClient) mustBe(t *testing.T, call, outcome, after string) {
	t.Helper()
	ctx := testutils.Context(t)
	for {
		c.mu.Lock()
		last, n, ended := c.last[call], c.inARow[call], c.ended
		c.mu.Unlock()
		switch {
		case ended != nil:
			t.Fatalf("after %q: %v\n%s", after, ended, c.errors())
		case last.outcome() == outcome && n >= 10:
			return
		}
		select {
		case <-c.news:
		case <-ctx.Done():
			t.Fatalf("after %q: %+v, want %s\n%s", after, last, outcome, c.errors())
		}
	}
}

// mustNotHaveFailed fails the test if any RPC has failed.
func (c *otherClient) mustNotHaveFailed(t *testing.T, after string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failed) > 0 {
		t.Errorf("after %q: %d RPCs failed, the first with %+v", after, len(c.failed), c.failed[0])
	}
}

func (c *otherClient) errors() []byte {
	text, err := os.ReadFile(c.stderr)
	if err != nil {
		return []byte(err.Error())
	}
	return text
}
