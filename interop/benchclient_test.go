//go:build unix

package interop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

// Some costs are a client's alone: CPU time, heap, goroutines, bytes on the
// wire. They are measured in a process that is nothing but that client, which
// the benchmark steers by lines of JSON on its standard input. The control plane
// is dynxds' own, since there is more to be had from it: its work is none of the
// client's process.

// order is what the benchmark wants of a benchClient.
type order struct {
	Op string
	// Peer and Channels are for "dial": whose xds, and how many channels, on
	// each of which the RPC is made once.
	Peer     string
	Channels int
	// DNS is the server that "load" has the process ask.
	DNS string
	// Method is the RPC; Want is who has to answer it, for "await".
	Method, Want string
	// For is how long "load" makes RPCs.
	For time.Duration
}

// usage is what the process of a benchClient has used so far, and what it
// holds. Heap and Goroutines are counted only if asked for.
type usage struct {
	CPU                          time.Duration
	Allocs, AllocBytes, Decoded  uint64
	Heap, Stacks                 uint64
	Goroutines                   int
	ElapsedUntilAnswer, Answered int64 // nanoseconds; nanoseconds since 1970
	// Of "load": RPCs, and how many of them failed; the most file descriptors that were
	// open, and the most memory in bytes.
	RPCs, Failed    int
	MostDescriptors int
	Peak            int64
	Err             string
}

// memory is bytes of live objects and of stacks.
func (u usage) memory() float64 { return float64(u.Heap + u.Stacks) }

// benchClient is such a process.
type benchClient struct {
	t     testing.TB
	stdin io.WriteCloser
	lines *bufio.Reader
	enc   *json.Encoder
}

const benchChild = "bench"

// startBenchClient starts a client whose bootstrap comes from the environment, as
// a user's does.
func startBenchClient(t testing.TB, bootstrap []byte) *benchClient {
	t.Helper()
	// No level is called none, so nothing is logged.
	return startBenchProcess(t, bootstrap, "none", os.Stderr)
}

// startLoggingBenchClient starts a client whose log at warning level is counted, in bytes.
func startLoggingBenchClient(t testing.TB, bootstrap []byte, log *atomic.Int64) *benchClient {
	t.Helper()
	return startBenchProcess(t, bootstrap, "warning", countWritten{log})
}

// countWritten counts bytes.
type countWritten struct{ n *atomic.Int64 }

func (c countWritten) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

func startBenchProcess(t testing.TB, bootstrap []byte, severity string, log io.Writer) *benchClient {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+benchChild, "GRPC_GO_LOG_SEVERITY_LEVEL="+severity,
		"GRPC_XDS_BOOTSTRAP_CONFIG="+string(bootstrap))
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	xdstest.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	xdstest.NoError(t, err)
	xdstest.NoError(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the client: %v", err)
		}
	})
	return &benchClient{t: t, stdin: stdin, lines: bufio.NewReader(stdout), enc: json.NewEncoder(stdin)}
}

// do gives an order and returns the answer.
func (c *benchClient) do(o order) usage {
	c.t.Helper()
	xdstest.NoError(c.t, c.enc.Encode(o))
	return c.answer()
}

func (c *benchClient) answer() usage {
	c.t.Helper()
	line, err := c.lines.ReadBytes('\n')
	if err != nil {
		c.t.Fatalf("the client has ended: %v", err)
	}
	var u usage
	xdstest.NoError(c.t, json.Unmarshal(line, &u))
	if u.Err != "" {
		c.t.Fatalf("the client: %s", u.Err)
	}
	return u
}

// atRest returns what the client has used when it has nothing more to do.
func (c *benchClient) atRest() usage {
	c.t.Helper()
	return atRest(func() usage { return c.do(order{Op: "usage"}) })
}

// atRest returns what a process has used when it has nothing more to do.
func atRest(used func() usage) usage {
	const look, idle = 30 * time.Millisecond, time.Millisecond
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	last := used()
	for {
		<-ticker.C
		next := used()
		if next.CPU-last.CPU < idle {
			return next
		}
		last = next
	}
}

// dial opens channels, on each of which a method is called once. What the client held before and holds then is returned too.
func (c *benchClient) dial(peer string, channels int, method string) (before, dialed, held usage) {
	c.t.Helper()
	before = c.held()
	dialed = c.do(order{Op: "dial", Peer: peer, Channels: channels, Method: method})
	return before, dialed, c.held()
}

// held returns what the client holds when it has nothing more to do.
func (c *benchClient) held() usage {
	c.t.Helper()
	c.atRest()
	return c.do(order{Op: "held"})
}

// benchProgram is the program of a benchClient.
type benchProgram struct {
	channels []*grpc.ClientConn
	out      *json.Encoder
}

// runBenchProgram returns the exit status.
func runBenchProgram() int {
	p := &benchProgram{out: json.NewEncoder(os.Stdout)}
	for in := json.NewDecoder(os.Stdin); ; {
		var o order
		if err := in.Decode(&o); err != nil {
			return 0
		}
		u, err := p.obey(o)
		if err != nil {
			u.Err = err.Error()
		}
		if err := p.out.Encode(u); err != nil {
			return 1
		}
	}
}

func (p *benchProgram) obey(o order) (usage, error) {
	switch o.Op {
	case "usage":
		return used(), nil
	case "held":
		return held(), nil
	case "dial":
		return p.dial(o)
	case "await":
		if err := p.out.Encode(usage{}); err != nil { // It begins.
			return usage{}, err
		}
		return p.await(o)
	case "load":
		return p.load(o)
	}
	return usage{}, fmt.Errorf("order %q is unknown", o.Op)
}

// channel opens a channel with the xds of a peer.
func (p *benchProgram) channel(peer string) (*grpc.ClientConn, error) {
	scheme := "dynxds"
	if peer == grpcGo {
		scheme = "xds" // Go initializes gRPC-Go's xds after dynxds.
	}
	cc, err := grpc.NewClient(scheme+":///"+service, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		p.channels = append(p.channels, cc)
	}
	return cc, err
}

func (p *benchProgram) dial(o order) (usage, error) {
	begin := time.Now()
	errs := make([]error, o.Channels)
	var all sync.WaitGroup
	for i := range errs {
		cc, err := p.channel(o.Peer)
		if err != nil {
			return usage{}, err
		}
		all.Go(func() { _, errs[i] = who(cc, o.Method) })
	}
	all.Wait()
	u := used()
	u.ElapsedUntilAnswer = int64(time.Since(begin))
	for _, err := range errs {
		if status.Code(err) == codes.DeadlineExceeded {
			return u, nil // It shows in the time.
		}
		if err != nil {
			return u, err
		}
	}
	return u, nil
}

// await makes RPCs until the right backend answers.
func (p *benchProgram) await(o order) (usage, error) {
	pause := time.NewTicker(200 * time.Microsecond)
	defer pause.Stop()
	for end := time.Now().Add(patience); ; <-pause.C {
		got, err := who(p.channels[0], o.Method)
		if err != nil && o.Want != "" {
			// gRPC-Go's xds fails RPCs when routes change.
			got = err.Error()
		}
		if got == o.Want {
			return usage{Answered: time.Now().UnixNano()}, nil
		}
		if time.Now().After(end) {
			return usage{}, fmt.Errorf("%s is answered by %q, want %q", o.Method, got, o.Want)
		}
	}
}

// patience ends what hangs.
const patience = time.Minute

// who makes an RPC and returns the backend that answered.
func who(cc *grpc.ClientConn, method string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var reply testpb.SimpleResponse
	err := cc.Invoke(ctx, method, &testpb.Empty{}, &reply)
	return reply.GetHostname(), err
}

// held is what this process has used and holds.
func held() usage {
	// Twice: what finalizers and pools let go of is freed by the second.
	runtime.GC()
	runtime.GC()
	return used()
}

// used is what this process has used.
func used() usage {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return usage{Err: err.Error()}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := usage{
		CPU:    time.Duration(r.Utime.Nano() + r.Stime.Nano()),
		Allocs: m.Mallocs, AllocBytes: m.TotalAlloc,
		Heap: m.HeapAlloc, Stacks: m.StackInuse, Goroutines: runtime.NumGoroutine(),
	}
	for _, c := range xdsclient.Clients() {
		u.Decoded += c.Stats().Decoded
	}
	return u
}
