package interop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	grpccsds "google.golang.org/grpc/xds/csds"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/gocp"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/testutils"
)

// explainedChild is a program with a channel of gRPC-Go's xds, and its CSDS.
const explainedChild = "a channel of gRPC-Go and its CSDS"

// explainedHeader distinguishes the routes of TestExplainGRPCGo.
const explainedHeader = "x-user"

// runExplained is the program. It makes RPCs without the header and with it, prints the address of its
// CSDS and who answered, and ends with its standard input. It returns its exit status.
func runExplained() int {
	if err := serveExplained(); err != nil {
		fmt.Println("error", err)
		return 1
	}
	return 0
}

func serveExplained() error {
	cc, err := grpc.NewClient("xds:///"+service, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	answers := make([]string, 0, 2)
	for _, out := range []context.Context{ctx, metadata.AppendToOutgoingContext(ctx, explainedHeader, "7")} {
		var header metadata.MD
		if _, err := testpb.NewTestServiceClient(cc).EmptyCall(out, new(testpb.Empty), grpc.Header(&header)); err != nil {
			return err
		}
		answers = append(answers, strings.Join(header.Get(testutils.BackendIDHeader), ","))
	}
	status, err := grpccsds.NewClientStatusDiscoveryServer()
	if err != nil {
		return err
	}
	defer status.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	statuspb.RegisterClientStatusDiscoveryServiceServer(server, status)
	go func() {
		fmt.Println(listener.Addr(), strings.Join(answers, " "))
		_, _ = io.Copy(io.Discard, os.Stdin)
		server.Stop()
	}()
	return server.Serve(listener)
}

// For the CSDS of a process with gRPC-Go's own xds, "dynxds explain" reports where the RPCs of the process went, and
// which parts of its routes gRPC-Go leaves out and ignores.
func TestExplainGRPCGo(t *testing.T) {
	t.Parallel()
	command := buildCommand(t) // before the child, whose time is limited
	w := newExplainedWorld(t)
	file := filepath.Join(t.TempDir(), "bootstrap.json")
	xdstest.NoError(t, os.WriteFile(file, w.control.Bootstrap(), 0o600))
	child := exec.CommandContext(testutils.Context(t), os.Args[0])
	child.Env = append(os.Environ(), "GRPC_XDS_BOOTSTRAP="+file, childVariable+"="+explainedChild)
	stdin, err := child.StdinPipe()
	xdstest.NoError(t, err)
	stdout, err := child.StdoutPipe()
	xdstest.NoError(t, err)
	xdstest.NoError(t, child.Start())
	defer func() {
		stdin.Close()
		xdstest.NoError(t, child.Wait())
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	xdstest.NoError(t, err)
	parts := strings.Fields(line)
	if len(parts) != 3 || parts[0] == "error" {
		t.Fatalf("the process says %q", line)
	}
	for i, headers := range [][]string{nil, {"-H", explainedHeader + ": 7"}} {
		e := checkExplained(t, command, parts[0], grpcUserAgent, parts[1+i], emptyCall.Method, headers...)
		if e.Routes[0].LeftOut == "" {
			t.Errorf("the route with query_parameters is %+v, want it left out", e.Routes[0])
		}
	}
}

// TestExplainGRPCJS is TestExplainGRPCGo with a process of grpc-js.
func TestExplainGRPCJS(t *testing.T) {
	t.Parallel()
	dir, command := installJS(t)
	w := newExplainedWorld(t)
	calls, err := json.Marshal([]otherCall{
		{Name: "plain", Method: emptyCall.Method},
		{Name: "unary", Method: unaryMethod},
		{Name: "with header", Method: emptyCall.Method, Metadata: map[string]string{explainedHeader: "7"}},
	})
	xdstest.NoError(t, err)
	cmd := exec.Command(command[0], append(command[1:len(command):len(command)], "xds:///"+service, string(calls), "csds")...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GRPC_XDS_BOOTSTRAP_CONFIG="+string(w.bootstrapForJS(t)))
	client := startOther(t, cmd)
	address, dynxdsCommand := client.mustAnswer(t, "csds"), buildCommand(t)
	checkExplained(t, dynxdsCommand, address, jsUserAgent, client.mustAnswer(t, "plain"), emptyCall.Method)
	checkExplained(t, dynxdsCommand, address, jsUserAgent, client.mustAnswer(t, "with header"), emptyCall.Method, "-H", explainedHeader+": 7")
	// grpc-js takes routes with query_parameters as if they had none.
	e := checkExplained(t, dynxdsCommand, address, jsUserAgent, client.mustAnswer(t, "unary"), unaryMethod)
	if e.Routes[0].Unchecked == "" {
		t.Errorf("the route with query_parameters is %+v, want it taken without", e.Routes[0])
	}
}

const unaryMethod = "/grpc.testing.TestService/UnaryCall"

// jsUserAgent is the user agent in the node of grpc-js.
const jsUserAgent = "gRPC Node Pure JS"

// bootstrapForJS returns a bootstrap with the locality that grpc-js wants.
func (w *world) bootstrapForJS(t *testing.T) []byte {
	t.Helper()
	var document map[string]any
	xdstest.NoError(t, json.Unmarshal(w.control.Bootstrap(), &document))
	node, _ := document["node"].(map[string]any)
	node["locality"] = map[string]any{}
	text, err := json.Marshal(document)
	xdstest.NoError(t, err)
	return text
}

// mustAnswer returns the answer of a call, once there is one.
func (c *otherClient) mustAnswer(t *testing.T, call string) string {
	t.Helper()
	c.state.Await(t, "an answer to call "+call, func() bool {
		return c.ended != nil || c.last[call].Code != 0 || c.last[call].Backend != ""
	})
	var backend string
	c.state.Change(func() {
		if backend = c.last[call].Backend; c.ended != nil || backend == "" {
			t.Errorf("call %s: %+v, %v\n%s", call, c.last[call], c.ended, c.errors())
		}
	})
	if backend == "" {
		t.FailNow()
	}
	return backend
}

// newExplainedWorld is a control plane whose routes have what gRPC leaves out, and ignores.
func newExplainedWorld(t *testing.T) *world {
	t.Helper()
	w := &world{control: gocp.Start(t, gocp.AnyNames), blue: testutils.StartBackend(t, "blue"), green: testutils.StartBackend(t, "green")}
	query := xdsmsg.With(xdsmsg.PathRoute(unaryMethod, "green"), `match { query_parameters { name: "q" } }`)
	byHeader := xdsmsg.With(xdsmsg.PrefixRoute("/", "green"), `match { headers { name: %q present_match: true } }`, explainedHeader)
	mirrored := xdsmsg.With(xdsmsg.PrefixRoute("/", "blue"), `route { request_mirror_policies { cluster: "green" } }`)
	w.control.Set(t, []proto.Message{
		xdsmsg.DefaultListener(service, "routes"), xdsmsg.RouteConfig("routes", "*", query, byHeader, mirrored),
		cluster("blue", "blue"), w.endpoints("blue", w.blue), cluster("green", "green"), w.endpoints("green", w.green),
	}...)
	return w
}

// checkExplained checks what "dynxds explain" says of an RPC of a client, which went to a backend.
func checkExplained(t *testing.T, command, address, userAgent, backend, method string, headers ...string) *explain.Explanation {
	t.Helper()
	args := append([]string{"explain", address, "xds:///" + service, method, "-o", "json"}, headers...)
	var stderr strings.Builder
	cmd := exec.CommandContext(testutils.Context(t), command, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("dynxds %q: %v\n%s", args, err, stderr.String())
	}
	var e explain.Explanation
	xdstest.NoError(t, json.Unmarshal(out, &e))
	if e.Client.Name != userAgent {
		t.Errorf("the client is %+v, want %s", e.Client, userAgent)
	}
	if want := fmt.Sprintf("cluster %q, priority 0, 1 endpoint, connection state unknown", backend); !strings.HasSuffix(e.Outcome, want) {
		t.Errorf("with headers %q: %s, want %s", headers, e.Outcome, want)
	}
	ignored := false
	for _, r := range e.Routes {
		ignored = ignored || r.Action != nil && len(r.Action.Mirrors) == 1 && r.Action.Mirrors[0].Ignored != ""
	}
	if ignored != (backend == "blue") {
		t.Errorf("with headers %q: the mirror is ignored: %t", headers, ignored)
	}
	return &e
}
