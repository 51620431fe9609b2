package interop_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/mesh/relay"
	"github.com/dynxds/dynxds/testutils"
)

// ourServer is the control plane of dynxds for other clients, with or without a relay in front of it.
type ourServer struct {
	*meshtest.Server
	world
	relay *relay.Relay
	// addr is where the clients connect to.
	addr string
}

func startOurServer(t *testing.T, how ourOption) *ourServer {
	t.Helper()
	s := &ourServer{world: world{blue: testutils.StartBackend(t, "blue"), green: testutils.StartBackend(t, "green")}}
	if how.relayed == nil {
		s.Server = meshtest.Start(t, meshtest.Options{Control: how.Options})
		s.addr = s.Addr()
	} else {
		s.Server = meshtest.StartServer(t)
		how.Options.OnNACK = func(r controlplane.Rejection) {
			t.Errorf("a client of the relay rejected %s: %v", r.TypeURL, r.NACK.Err)
		}
		s.relay, s.addr = startRelay(t, s.Bootstrap("relay", testutils.ServerFeatures(how.relayed...)), how.Options)
	}
	s.Set(t, s.initial()...)
	return s
}

// bootstrapForOthers is a bootstrap with the fields that other clients require.
func (s *ourServer) bootstrapForOthers() []byte {
	return testutils.Bootstrap("interop-node", s.addr, testutils.NodeField("locality", map[string]any{}))
}

// ourOption has the options of the server that other clients connect to and, if that is a relay, the features of its
// connection to the control plane.
type ourOption struct {
	controlplane.Options
	relayed []string
}

var ourOptions = map[string]ourOption{
	"as it is":                                {},
	"with resources wrapped":                  {Options: controlplane.Options{WrapResources: true}},
	"with NOT_FOUND errors":                   {Options: controlplane.Options{NotFoundErrors: true}},
	"through a relay":                         {relayed: []string{}},
	"through a relay over delta":              {relayed: []string{"delta"}},
	"through a relay, with resources wrapped": {relayed: []string{"delta"}, Options: controlplane.Options{WrapResources: true}},
}

// ourSteps are changes of every type of resource, and who answers after each.
func (s *ourServer) ourSteps() []struct {
	name      string
	change    func(t *testing.T)
	answering string
} {
	set := func(messages ...proto.Message) func(*testing.T) {
		return func(t *testing.T) { t.Helper(); s.Set(t, messages...) }
	}
	return []struct {
		name      string
		change    func(t *testing.T)
		answering string
	}{
		{"nothing", set(), "blue"},
		{"EDS: other endpoints", set(s.endpoints("blue", s.green)), "green"},
		{"EDS: back again", set(s.endpoints("blue", s.blue)), "blue"},
		{"RDS: a new cluster", set(cluster("green", "green"), s.endpoints("green", s.green), routes("routes", "green")), "green"},
		{"CDS: endpoints by another name", set(cluster("green", "blue")), "blue"},
		{"LDS: another RouteConfiguration", set(cluster("green", "green"), routes("more-routes", "green"), listener("more-routes")), "green"},
		{"LDS: routes inline", set(cluster("blue", "blue"), xdsmsg.InlineListener(service, routes("", "blue"))), "blue"},
		{"a restart, with other routes", func(t *testing.T) {
			s.Stop()
			s.Set(t, xdsmsg.InlineListener(service, routes("", "green")))
			xdstest.NoError(t, s.Restart())
		}, "green"},
	}
}

// checkAccepted fails the test if the client rejected anything.
func (s *ourServer) checkAccepted(t *testing.T) {
	t.Helper()
	clients := s.Clients()
	if s.relay != nil {
		clients = append(clients, s.relay.Clients()...)
	}
	for _, c := range clients {
		for _, typ := range c.Types {
			if typ.NACK != nil {
				t.Errorf("%s: the client rejected %s: %v", c.Node.GetUserAgentName(), typ.TypeURL, typ.NACK.Err)
			}
		}
	}
	for _, r := range s.Requests() {
		if r.Err != nil {
			t.Errorf("the client rejected %s: %v", r.TypeURL, r.Err)
		}
	}
}

// gRPC-Go's xds accepts everything that our control plane sends, directly or through a relay, and
// follows every change.
func TestGRPCGoAgainstOurControlPlane(t *testing.T) {
	for name, how := range ourOptions {
		xdstest.Parallel(t, name, func(t *testing.T) {
			s := startOurServer(t, how)
			client := testpb.NewTestServiceClient(dial(t, builderOf(t, grpcGo, s.bootstrapForOthers()), "xds:///"+service))
			for _, step := range s.ourSteps() {
				step.change(t)
				ctx := testutils.Context(t)
				// It fails RPCs while routes change, which is not what is tested.
				for inARow := 0; inARow < 10; {
					id, err := answeredOnce(ctx, client)
					if ctx.Err() != nil {
						t.Fatalf("after %q: %s answers, error %v; want %s", step.name, id, err, step.answering)
					}
					inARow++
					if id != step.answering {
						inARow = 0
					}
				}
			}
			s.checkAccepted(t)
		})
	}
}

func answeredOnce(ctx context.Context, client testpb.TestServiceClient) (string, error) {
	reply, err := client.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.WaitForReady(false))
	return reply.GetHostname(), err
}

// otherCall is an RPC that a client of another language makes over and over.
type otherCall struct {
	Name     string            `json:"name"`
	Method   string            `json:"method"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

var emptyCall = otherCall{Name: "empty", Method: "/grpc.testing.TestService/EmptyCall"}

// otherRPC is the outcome of one.
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

	state xdstest.State
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
	c := &otherClient{stderr: stderr.Name(), last: map[string]otherRPC{}, inARow: map[string]int{}}
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
	c.count(otherRPC{}, fmt.Errorf("the process ended: %w", cmp.Or(lines.Err(), io.EOF)))
}

func (c *otherClient) count(rpc otherRPC, err error) {
	c.state.Change(func() {
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
	})
}

// mustReach returns when emptyCall was answered by the backend ten times in a row, from
// now on.
func (c *otherClient) mustReach(t *testing.T, backend, after string) {
	t.Helper()
	c.state.Change(func() { c.inARow[emptyCall.Name] = 0 })
	c.mustBe(t, emptyCall.Name, backend, after)
}

// mustBe returns when the outcome of a call was this ten times in a row.
func (c *otherClient) mustBe(t *testing.T, call, outcome, after string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			c.state.Change(func() { t.Logf("the last RPC: %+v, ended: %v\n%s", c.last[call], c.ended, c.errors()) })
		}
	}()
	c.state.Await(t, fmt.Sprintf("%s after %q", outcome, after), func() bool {
		return c.ended != nil || c.last[call].outcome() == outcome && c.inARow[call] >= 10
	})
	c.state.Change(func() {
		if c.ended != nil {
			t.Errorf("after %q: the client has ended", after)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
}

// mustNotHaveFailed fails the test if any RPC has failed.
func (c *otherClient) mustNotHaveFailed(t *testing.T, after string) {
	t.Helper()
	c.state.Change(func() {
		if len(c.failed) > 0 {
			t.Errorf("after %q: %d RPCs failed, the first with %+v", after, len(c.failed), c.failed[0])
		}
	})
}

func (c *otherClient) errors() []byte {
	text, err := os.ReadFile(c.stderr)
	if err != nil {
		return []byte(err.Error())
	}
	return text
}
