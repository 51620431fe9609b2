package etcdtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/testutils"
)

// command is dynxds, as users have it.
var command string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "etcdtest")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		command = filepath.Join(dir, "dynxds")
		build := exec.Command("go", "build", "-o", command, "./cmd/dynxds")
		build.Dir = "../.."
		if out, err := build.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("building dynxds: %v\n%s", err, out))
		}
		return m.Run()
	}())
}

// replica is "dynxds serve --store" in a process of its own.
type replica struct {
	t       *testing.T
	address string
	args    []string
	log     *xdstest.Log
	process *exec.Cmd
}

// newReplica starts a replica, which ends with the test, and waits until it serves.
func newReplica(t *testing.T, c *cluster, args ...string) *replica {
	t.Helper()
	r := startReplica(t, c, args...)
	r.serves()
	return r
}

// startReplica starts a replica that may not be ready.
func startReplica(t *testing.T, c *cluster, args ...string) *replica {
	t.Helper()
	r := &replica{t: t, address: reserve(t)}
	r.args = append([]string{"serve", "--store", c.options(prefix).URL, "--listen", r.address}, args...)
	r.start()
	t.Cleanup(func() {
		r.kill()
		if t.Failed() {
			t.Logf("the log of %v:\n%s", r.args, r.log)
		}
	})
	return r
}

// start starts it, again with the same address.
func (r *replica) start() {
	r.t.Helper()
	r.log = new(xdstest.Log)
	r.process = exec.Command(command, r.args...)
	r.process.Stderr = r.log
	xdstest.NoError(r.t, r.process.Start())
}

// serves waits until it serves.
func (r *replica) serves() {
	r.t.Helper()
	r.logged("msg=serving", "store=etcd:/mesh/docs")
}

// page returns the address of the pages that a flag asks for.
func (r *replica) page(flag string) string {
	r.t.Helper()
	r.logged("pages without a login", "flag="+flag)
	_, url, _ := strings.Cut(r.log.String(), "flag="+flag+" url=")
	url, _, _ = strings.Cut(url, " ")
	return url
}

// kill ends it as a crash does.
func (r *replica) kill() {
	if r.process.ProcessState == nil {
		_ = r.process.Process.Kill()
		_ = r.process.Wait()
	}
}

// drain ends it as a deployment does.
func (r *replica) drain() {
	r.t.Helper()
	xdstest.NoError(r.t, r.process.Process.Signal(syscall.SIGTERM))
	xdstest.NoError(r.t, r.process.Wait())
}

func (r *replica) logged(texts ...string) {
	r.t.Helper()
	xdstest.NoError(r.t, r.log.Wait(testutils.Context(r.t), texts...))
}

// client is a channel to the service "backend".
type client struct {
	t *testing.T
	testpb.TestServiceClient
}

// newClient makes a channel over delta.
func newClient(t *testing.T, controlPlane string) *client {
	t.Helper()
	bootstrap := testutils.Bootstrap("client", controlPlane, testutils.ServerFeatures("delta", "fail_on_data_errors"))
	return &client{t, testpb.NewTestServiceClient(cmdtest.DialXDS(t, "xds:///backend", bootstrap))}
}

func (c *client) call(ctx context.Context) (backend string, err error) {
	var header metadata.MD
	_, err = c.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Header(&header))
	return strings.Join(header.Get(testutils.BackendIDHeader), ","), err
}

// reaches makes RPCs until one is answered by the backend. None may fail.
func (c *client) reaches(b *testutils.Backend) {
	c.t.Helper()
	ctx := testutils.Context(c.t)
	for {
		got, err := c.call(ctx)
		if err != nil {
			c.t.Fatalf("want an RPC that reaches %s: %v", b.ID(), err)
		}
		if got == b.ID() {
			return
		}
	}
}

// load makes RPCs all the time until stop is called. None may fail.
func (c *client) load() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for ctx.Err() == nil {
				if _, err := c.call(testutils.Context(c.t)); err != nil {
					c.t.Errorf("an RPC failed: %v", err)
					return
				}
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// recorder carries ADS streams, delta ones, and notes what resources a server sends.
type recorder struct {
	discoverypb.UnimplementedAggregatedDiscoveryServiceServer
	address string
	conn    *grpc.ClientConn

	// streams has an element for each stream that has asked for all of the client's resources.
	streams chan struct{}

	mu   sync.Mutex
	sent []string
}

func newRecorder(t *testing.T, to string) *recorder {
	t.Helper()
	r := &recorder{conn: cmdtest.Dial(t, to), streams: make(chan struct{}, 100)}
	r.address = cmdtest.Serve(t, func(s *grpc.Server) { discoverypb.RegisterAggregatedDiscoveryServiceServer(s, r) })
	return r
}

func (r *recorder) DeltaAggregatedResources(down grpc.BidiStreamingServer[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse]) error {
	up, err := discoverypb.NewAggregatedDiscoveryServiceClient(r.conn).DeltaAggregatedResources(down.Context())
	if err != nil {
		return err
	}
	go func() {
		types := make(map[string]bool)
		for {
			request, err := down.Recv()
			if err != nil || up.Send(request) != nil {
				return
			}
			if before := len(types); before < 4 {
				if types[request.GetTypeUrl()] = true; len(types) == 4 {
					r.streams <- struct{}{} // which has room for all of a test
				}
			}
		}
	}()
	for {
		response, err := up.Recv()
		if err != nil {
			return err
		}
		r.mu.Lock()
		for _, resource := range response.GetResources() {
			r.sent = append(r.sent, shortType.FindString(response.GetTypeUrl())+" "+resource.GetName())
		}
		r.mu.Unlock()
		if err := down.Send(response); err != nil {
			return err
		}
	}
}

// asked waits for a stream that has asked for all of the client's resources.
func (r *recorder) asked(t *testing.T) {
	t.Helper()
	select {
	case <-r.streams:
	case <-testutils.Context(t).Done():
		t.Fatal("the client does not come to the replica")
	}
}

var shortType = regexp.MustCompile(`[A-Za-z]+$`)

// take returns what was sent since the last call.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent
	r.sent = nil
	return sent
}
