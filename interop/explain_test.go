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

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	grpccsds "google.golang.org/grpc/xds/csds"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/gocp"
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

// TestExplainGRPCGo: given a process with a channel of gRPC-Go's own xds, when "dynxds explain" asks its
// CSDS, then it says where the RPCs of that process really went, and which parts of its routes
// gRPC-Go leaves out and ignores.
func TestExplainGRPCGo(t *testing.T) {
	t.Parallel()
	w := &world{control: gocp.Start(t, gocp.AnyNames), blue: testutils.StartBackend(t, "blue"), green: testutils.StartBackend(t, "green")}
	query, byHeader, mirrored := xdsmsg.PrefixRoute("/", "green"), xdsmsg.PrefixRoute("/", "green"), xdsmsg.PrefixRoute("/", "blue")
	query.Match.QueryParameters = []*routepb.QueryParameterMatcher{{Name: "q"}}
	byHeader.Match.Headers = []*routepb.HeaderMatcher{{Name: explainedHeader, HeaderMatchSpecifier: &routepb.HeaderMatcher_PresentMatch{PresentMatch: true}}}
	mirrored.GetRoute().RequestMirrorPolicies = []*routepb.RouteAction_RequestMirrorPolicy{{Cluster: "green"}}
	w.control.Set(t, []proto.Message{
		xdsmsg.DefaultListener(service, "routes"), xdsmsg.RouteConfig("routes", "*", query, byHeader, mirrored),
		cluster("blue", "blue"), w.endpoints("blue", w.blue), cluster("green", "green"), w.endpoints("green", w.green),
	}...)
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
	command := buildCommand(t)
	for i, headers := range [][]string{nil, {"-H", explainedHeader + ": 7"}} {
		args := append([]string{"explain", parts[0], "xds:///" + service, "/grpc.testing.TestService/EmptyCall", "--json"}, headers...)
		out, err := exec.CommandContext(testutils.Context(t), command, args...).Output()
		if err != nil {
			t.Fatalf("dynxds %q: %v\n%s", args, err, out)
		}
		var e dynxds.Explanation
		xdstest.NoError(t, json.Unmarshal(out, &e))
		if e.Client.Name != grpcUserAgent {
			t.Errorf("the client is %+v, want %s", e.Client, grpcUserAgent)
		}
		if want := fmt.Sprintf("cluster %q, priority 0, 1 endpoint", parts[1+i]); !strings.HasSuffix(e.Outcome, want) {
			t.Errorf("with headers %q: %s, want %s", headers, e.Outcome, want)
		}
		if e.Routes[0].LeftOut == "" {
			t.Errorf("the route with query_parameters is %+v, want it left out", e.Routes[0])
		}
		ignored := false
		for _, r := range e.Routes {
			ignored = ignored || r.Action != nil && len(r.Action.Mirrors) == 1 && r.Action.Mirrors[0].Ignored != ""
		}
		if ignored != (headers == nil) {
			t.Errorf("with headers %q: the mirror is ignored: %t", headers, ignored)
		}
	}
}
