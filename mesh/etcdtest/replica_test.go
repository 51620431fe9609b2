package etcdtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

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
