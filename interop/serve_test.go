package interop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// buildCommand returns the path of dynxds, built as users have it.
func buildCommand(t *testing.T) (path string) {
	t.Helper()
	path, err := builtCommand()
	xdstest.NoError(t, err)
	return path
}

// folder is one that "dynxds serve" serves, in a process of its own.
type folder struct {
	t       *testing.T
	command string
	dir     string
	process *exec.Cmd
	log     *bufio.Scanner
	addr    string
}

// serveFolder serves the files until the test ends, and expects exit status 0 then.
func serveFolder(t *testing.T, files map[string]string) *folder {
	t.Helper()
	f := &folder{t: t, command: buildCommand(t), dir: t.TempDir()}
	for name, text := range files {
		f.write(name, text)
	}
	f.process = exec.Command(f.command, "serve", f.dir, "--authority", "mesh", "--listen", "127.0.0.1:0", "--poll", "1h", "--log-format", "json")
	stderr, err := f.process.StderrPipe()
	xdstest.NoError(t, err)
	xdstest.NoError(t, f.process.Start())
	t.Cleanup(f.drain)
	f.log = bufio.NewScanner(stderr)
	var serving struct{ Address string }
	xdstest.NoError(t, json.Unmarshal([]byte(f.logged("serving")), &serving))
	f.addr = serving.Address
	return f
}

func (f *folder) write(name, text string) {
	f.t.Helper()
	xdstest.NoError(f.t, os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600))
}

// reload changes a file and makes the process read the folder. It returns when the log has
// the message.
func (f *folder) reload(name, text, message string) {
	f.t.Helper()
	f.write(name, text)
	f.lookAgain(message)
}

// lookAgain makes the process read the folder, and returns when the log has a message.
func (f *folder) lookAgain(messages ...string) {
	f.t.Helper()
	xdstest.NoError(f.t, f.process.Process.Signal(syscall.SIGHUP))
	f.logged(messages...)
}

// logged waits for a line of the log with one of the messages.
func (f *folder) logged(messages ...string) string {
	f.t.Helper()
	// The log ends with the process.
	stop := context.AfterFunc(testutils.Context(f.t), func() { _ = f.process.Process.Kill() })
	defer stop()
	for f.scan() {
		for _, message := range messages {
			if strings.Contains(f.log.Text(), fmt.Sprintf(`"msg":%q`, message)) {
				return f.log.Text()
			}
		}
	}
	f.t.Fatalf("the log of dynxds serve ended without %q", messages)
	return ""
}

// scan reads a line of the log. A NACK of a client fails the test.
func (f *folder) scan() bool {
	f.t.Helper()
	more := f.log.Scan()
	if strings.Contains(f.log.Text(), "a client rejects a response") {
		f.t.Errorf("%s", f.log.Text())
	}
	return more
}

// drain ends the process.
func (f *folder) drain() {
	if err := f.process.Process.Signal(syscall.SIGTERM); err != nil {
		f.t.Error(err)
	}
	for f.scan() {
		// It must not wait for its log to be read.
	}
	if err := f.process.Wait(); err != nil {
		f.t.Errorf("dynxds serve ended with %v, want exit status 0", err)
	}
}

// bootstrap is what "dynxds bootstrap" writes for a client.
func (f *folder) bootstrap(service, version string, more ...string) []byte {
	f.t.Helper()
	args := append([]string{"bootstrap", "--server", f.addr, "--id", service + "-" + version,
		"--metadata", "service=" + service + ",version=" + version}, more...)
	out, err := exec.CommandContext(f.t.Context(), f.command, args...).Output()
	xdstest.NoError(f.t, err)
	return out
}

// toVersion is a policy that sends all requests of some clients to one version of echo.
func toVersion(name, clients, version string) string {
	return fmt.Sprintf(`
kind: MeshHTTPRoute
metadata: {name: %s}
spec:
  targetRef: %s
  to:
  - targetRef: {kind: MeshService, name: echo}
    rules:
    - matches: [{path: {type: Prefix, value: /grpc.testing.TestService}}]
      backendRefs: [{kind: MeshServiceSubset, name: echo, weight: 1, tags: {version: %s}}]
`, name, clients, version)
}

// servedClient makes RPCs to echo as a client of "dynxds serve".
type servedClient struct {
	t    *testing.T
	rpcs testpb.TestServiceClient
	// excused is a text in errors of RPCs that do not count. Empty: no
	// RPC may fail.
	excused string
}

// reaches makes RPCs until the backend answers ten after one another.
func (c *servedClient) reaches(backend string) {
	c.t.Helper()
	ctx := testutils.Context(c.t)
	for inOrder := 0; inOrder < 10; {
		answer, err := c.rpcs.UnaryCall(ctx, &testpb.SimpleRequest{})
		switch {
		case err == nil && answer.GetHostname() == backend:
			inOrder++
		case err == nil, c.excused != "" && strings.Contains(err.Error(), c.excused):
			inOrder = 0
		default:
			c.t.Fatalf("while %s was to be reached an RPC failed: %v", backend, err)
		}
	}
}

// servedKind is a kind of clients. With an authority dynxds sends dynamic parameters.
type servedKind struct{ peer, authority string }

var servedKinds = []servedKind{{grpcGo, ""}, {grpcGo, "mesh"}, {ours, ""}, {oursOnDelta, ""}, {ours, "mesh"}}

func (k servedKind) target(service string) string { return "xds://" + k.authority + "/" + service }

// builder is that of a client of a kind, with further arguments of "dynxds bootstrap".
func (f *folder) builder(k servedKind, service, version string, more ...string) grpcresolver.Builder {
	f.t.Helper()
	if k.authority != "" {
		more = append(more, "--authority", k.authority)
	}
	if k.peer == oursOnDelta {
		more = append(more, "--feature", "delta")
	}
	return builderOf(f.t, k.peer, f.bootstrap(service, version, more...))
}

// client makes RPCs to echo as a client of a kind.
func (f *folder) client(k servedKind, service, version string) *servedClient {
	f.t.Helper()
	c := &servedClient{t: f.t, rpcs: testpb.NewTestServiceClient(dial(f.t, f.builder(k, service, version), k.target("echo")))}
	if k.peer == grpcGo {
		c.excused = betweenClusters
	}
	return c
}

// When a route moves to another cluster, gRPC-Go routes RPCs to it for a moment before
// its balancer knows the cluster.
const betweenClusters = "unknown cluster selected for RPC"

// Given "dynxds serve" over a folder with policies of an owner and of a consumer, and
// bootstraps of "dynxds bootstrap", clients of gRPC-Go's xds and of dynxds get the resources
// for their nodes. They follow changes of the files, and keep the last valid state.
func TestGRPCGoWorksWithServe(t *testing.T) {
	t.Parallel()
	v1, v2 := testutils.StartBackend(t, "v1"), testutils.StartBackend(t, "v2")
	const ofFrontend, everybody = "{kind: MeshServiceSubset, name: frontend, tags: {version: v2}}", "{kind: Mesh}"
	f := serveFolder(t, map[string]string{
		"services.yaml": fmt.Sprintf(`
kind: Service
name: echo
endpoints:
- {address: %q, tags: {version: v1}}
- {address: %q, tags: {version: v2}, locality: {zone: b}}
`, v1.Addr(), v2.Addr()),
		"owner.yaml":    toVersion("owner", everybody, "v1"),
		"consumer.yaml": toVersion("consumer", ofFrontend, "v2"),
	})

	var frontends, others []*servedClient
	for _, k := range servedKinds {
		frontends = append(frontends, f.client(k, "frontend", "v2"))
		others = append(others, f.client(k, "frontend", "v1"), f.client(k, "batch", "v2"))
	}
	expect := func(ofFrontends, ofOthers string) {
		t.Helper()
		for _, c := range frontends {
			c.reaches(ofFrontends)
		}
		for _, c := range others {
			c.reaches(ofOthers)
		}
	}
	expect("v2", "v1")

	f.reload("consumer.yaml", toVersion("consumer", ofFrontend, "v1"), "published")
	expect("v1", "v1")
	f.reload("owner.yaml", toVersion("owner", everybody, "v2"), "published")
	expect("v1", "v2")
	f.reload("owner.yaml", "kind: MeshHTTPRoute\nnam: owner\n", "the folder has errors; clients keep the last good state")
	expect("v1", "v2")
	f.reload("owner.yaml", toVersion("owner", everybody, "v1"), "published")
	expect("v1", "v1")
}

// With the folder of TestOtherLanguagesAreNeverMisrouted, RPCs of gRPC-Go's xds and of dynxds
// go the same ways; the errors of dynxds say where the redirect leads.
func TestGRPCGoIsNeverMisrouted(t *testing.T) {
	t.Parallel()
	v1, v2 := testutils.StartBackend(t, "v1"), testutils.StartBackend(t, "v2")
	f := serveFolder(t, map[string]string{"mesh.yaml": beyondGRPC(v1.Addr(), v2.Addr(), "127.0.0.1:1")})
	for _, peer := range []string{grpcGo, ours} {
		cc := dial(t, builderOf(t, peer, f.bootstrap("frontend", "v1")), "xds:///echo")
		calls, want := beyondGRPCCalls()
		for _, call := range calls {
			rpc := invoke(t, cc, call)
			if rpc.outcome() != want[call.Name] && (peer != ours || call.Name != "redirect") {
				t.Errorf("%s: %+v, want %s", peer, rpc, want[call.Name])
			}
			if peer == ours && call.Name == "redirect" && !strings.Contains(rpc.Error, "elsewhere") {
				t.Errorf("the error of a redirect is %+v, want where it leads", rpc)
			}
		}
	}
}

// invoke makes one RPC.
func invoke(t *testing.T, cc *grpc.ClientConn, call otherCall) otherRPC {
	t.Helper()
	ctx := testutils.Context(t)
	for key, value := range call.Metadata {
		ctx = metadata.AppendToOutgoingContext(ctx, key, value)
	}
	rpc := otherRPC{Call: call.Name}
	var header metadata.MD
	if err := cc.Invoke(ctx, call.Method, &emptypb.Empty{}, &emptypb.Empty{}, grpc.Header(&header)); err != nil {
		rpc.Code, rpc.Error = int(status.Code(err)), err.Error()
	}
	rpc.Backend = strings.Join(header.Get(testutils.BackendIDHeader), ",")
	return rpc
}

// accepted counts the connections to a backend.
type accepted struct {
	noStats
	n atomic.Int32
}

func (a *accepted) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnBegin); ok {
		a.n.Add(1)
	}
}

// Given "dynxds serve" and clients with RPCs, when comments are put above everything, so that resources name
// other lines, then RPCs go on over the connections that there are.
func TestMovedLinesCostGRPCGoNothing(t *testing.T) {
	t.Parallel()
	seen := new(accepted)
	v1, v2 := testutils.StartBackend(t, "v1", grpc.StatsHandler(seen)), testutils.StartBackend(t, "v2")
	files := map[string]string{
		"services.yaml": fmt.Sprintf(`
kind: Service
name: echo
endpoints:
- {address: %q, tags: {version: v1}}
- {address: %q, tags: {version: v2}}
`, v1.Addr(), v2.Addr()),
		"owner.yaml": toVersion("owner", "{kind: Mesh}", "v1"),
	}
	f := serveFolder(t, files)
	var clients []*servedClient
	for _, k := range servedKinds {
		c := f.client(k, "frontend", "v1")
		c.excused = "" // until the route moves
		clients = append(clients, c)
	}
	reach := func(backend string) {
		t.Helper()
		for _, c := range clients {
			c.reaches(backend)
		}
	}
	reach("v1")
	before := seen.n.Load()
	for i := range 5 {
		for name, text := range files {
			f.reload(name, strings.Repeat("# a comment\n", i+1)+text, "published")
		}
		reach("v1")
	}
	for _, c := range clients {
		c.excused = betweenClusters
	}
	f.reload("owner.yaml", toVersion("owner", "{kind: Mesh}", "v2"), "published")
	reach("v2") // which comes after all of the above
	xdstest.Equal(t, "connections to the backend since the lines moved", before, seen.n.Load())
}
