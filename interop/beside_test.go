package interop_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/interop/gocp"
	"github.com/dynxds/dynxds/interop/load"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/testutils"
)

// grpcUserAgent is what the node of gRPC-Go's xds says it is.
const grpcUserAgent = "gRPC Go"

// grpcGoBuilder is gRPC-Go's xds for the control plane. Its scheme is "xds".
func grpcGoBuilder(t testing.TB, control *gocp.Server) grpcresolver.Builder {
	t.Helper()
	b, err := xds.NewXDSResolverWithConfigForTesting(control.Bootstrap())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// userAgents returns which clients have asked the control plane for
// something.
func userAgents(control *gocp.Server) map[string]bool {
	found := map[string]bool{}
	for _, r := range control.Requests() {
		if name := r.Node.GetUserAgentName(); name != "" {
			found[name] = true
		}
	}
	return found
}

// TestGRPCGoChannelsPassStraightThrough: given a process with dynxds, whose
// interceptors are on every channel of the scheme "xds", when a channel's
// resolver is gRPC-Go's, then gRPC-Go routes its RPCs and dynxds takes no part.
func TestGRPCGoChannelsPassStraightThrough(t *testing.T) {
	t.Run("RPCs succeed", func(t *testing.T) {
		t.Parallel()
		control := gocp.Start(t, gocp.AnyNames)
		blue := testutils.StartBackend(t, "blue")
		w := &world{control: control, blue: blue}
		control.Set(t, w.initial()...)
		rpcs := load.Start(t, dial(t, grpcGoBuilder(t, control), "xds:///"+service))
		rpcs.WaitForBackends(t, "blue")
		rpcs.Stop(t)
		if diff := cmp.Diff(map[string]bool{grpcUserAgent: true}, userAgents(control)); diff != "" {
			t.Errorf("who asked the control plane (-want +got):\n%s", diff)
		}
	})
	t.Run("RPCs wait in gRPC for the first configuration", func(t *testing.T) {
		t.Parallel()
		control := gocp.Start(t, gocp.AnyNames)
		cc := dial(t, grpcGoBuilder(t, control), "xds:///"+service)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := testpb.NewTestServiceClient(cc).EmptyCall(ctx, &testpb.Empty{})
		if status.Code(err) != codes.DeadlineExceeded || strings.Contains(err.Error(), "xDS configuration") {
			t.Errorf("the RPC ended with %v, want gRPC's own DEADLINE_EXCEEDED", err)
		}
	})
	t.Run("beside a channel of dynxds", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, gocp.AnyNames, nil)
		rpcs := load.Start(t, dial(t, grpcGoBuilder(t, w.control), "xds:///"+service))
		rpcs.WaitForBackends(t, "blue")
		w.control.Set(t, append(w.initial()[:3:3], w.endpoints("blue", w.green))...)
		rpcs.WaitForBackends(t, "green")
		w.load.WaitForBackends(t, "green")
		if diff := cmp.Diff(map[string]bool{grpcUserAgent: true, "dynxds": true}, userAgents(w.control)); diff != "" {
			t.Errorf("who asked the control plane (-want +got):\n%s", diff)
		}
	})
}

// lostScheme starts the error that the log has of the first channel that dynxds lost.
const lostScheme = "dynxds does not serve the channel to"

// The ways of a program that imports both packages to choose who resolves "xds:///". Without
// a choice gRPC-Go has it, since Go initializes it after dynxds.
var choices = []struct {
	child string            // what childVariable says
	want  map[string]string // the user agent of who resolves each scheme
	lost  bool              // the log says that dynxds lost the scheme
}{
	{bothSchemesChild, map[string]string{"xds": grpcUserAgent, "dynxds": "dynxds"}, true},
	{dialOnlyChild, map[string]string{}, true},
	{dialOptionsChild, map[string]string{"xds": "dynxds", "dynxds": "dynxds"}, false},
	{someDialOptionsChild, map[string]string{"xds": grpcUserAgent, "dynxds": "dynxds"}, true},
	{registerChild, map[string]string{"xds": "dynxds", "dynxds": "dynxds"}, false},
}

// TestBothSchemesInOneProcess: given a program that imports both packages and
// a bootstrap file in the environment, when it dials both schemes, then RPCs
// succeed on both, each resolved by the package that it has chosen; and one error in the
// log says so if dynxds has lost "xds".
//
// gRPC-Go reads the environment before main, so this is a process of its own.
func TestBothSchemesInOneProcess(t *testing.T) {
	t.Parallel()
	for _, choice := range choices {
		t.Run(choice.child, func(t *testing.T) {
			t.Parallel()
			w := &world{control: gocp.Start(t, gocp.AnyNames), blue: testutils.StartBackend(t, "blue")}
			snapshot := []proto.Message{xdsmsg.RouteConfig("routes", "*", xdsmsg.PrefixRoute("/", "blue")), cluster("blue", "blue"), w.endpoints("blue", w.blue)}
			for _, scheme := range schemes {
				snapshot = append(snapshot, xdsmsg.DefaultListener(serviceOf(scheme), "routes"))
			}
			w.control.Set(t, snapshot...)
			file := filepath.Join(t.TempDir(), "bootstrap.json")
			if err := os.WriteFile(file, w.control.Bootstrap(), 0o600); err != nil {
				t.Fatal(err)
			}

			cmd := exec.CommandContext(testutils.Context(t), os.Args[0])
			cmd.Env = append(os.Environ(), "GRPC_XDS_BOOTSTRAP="+file, childVariable+"="+choice.child)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if n := strings.Count(string(out), lostScheme); (n == 1) != choice.lost || n > 1 {
				t.Errorf("the log says %d times that dynxds lost the scheme, want it: %t\n%s", n, choice.lost, out)
			}
			if want := "package google.golang.org/grpc/internal/xds/resolver"; choice.lost && !strings.Contains(string(out), want) {
				t.Errorf("the log does not name the %s:\n%s", want, out)
			}
			got := map[string]string{}
			for _, r := range w.control.Requests() {
				for _, scheme := range schemes {
					if r.TypeURL == xdsmsg.ListenerType && slices.Contains(r.Names, serviceOf(scheme)) {
						got[scheme] = r.Node.GetUserAgentName()
					}
				}
			}
			if diff := cmp.Diff(choice.want, got); diff != "" {
				t.Errorf("who resolved which scheme (-want +got):\n%s", diff)
			}
		})
	}
}

// schemes are those that the child dials, "xds" twice.
var schemes = []string{"dynxds", "xds", "xds"}

// serviceOf is the service that the child dials by a scheme.
func serviceOf(scheme string) string { return "by-" + scheme + ".example.com" }

// childVariable makes this test's binary another program: that of
// TestBothSchemesInOneProcess, for example.
const (
	childVariable        = "DYNXDS_INTEROP_CHILD"
	bothSchemesChild     = "both schemes"
	dialOnlyChild        = "both schemes without RPCs"
	dialOptionsChild     = "both schemes with DialOptions"
	someDialOptionsChild = "both schemes, DialOptions for one"
	registerChild        = "both schemes with Register"
)

// child is the program of TestBothSchemesInOneProcess. It returns its exit status.
func child() int {
	variant := os.Getenv(childVariable)
	if variant == registerChild {
		resolver.Register()
	}
	var channels []*grpc.ClientConn
	for _, scheme := range schemes {
		opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
		if variant == dialOptionsChild || variant == someDialOptionsChild && scheme == "dynxds" {
			opts = append(opts, dynxds.DialOptions()...)
		}
		cc, err := grpc.NewClient(scheme+":///"+serviceOf(scheme), opts...)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		defer cc.Close()
		channels = append(channels, cc)
	}
	if variant == dialOnlyChild {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	// More than once each, in turn, so that both are at work at a time.
	for range 10 {
		for _, cc := range channels {
			if err := callAndStream(ctx, testpb.NewTestServiceClient(cc)); err != nil {
				fmt.Printf("%s: %v\n", cc.Target(), err)
				return 1
			}
		}
	}
	if variant != bothSchemesChild {
		return 0
	}
	if err := compareCSDS(ctx); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// callAndStream makes a unary and a streaming RPC.
func callAndStream(ctx context.Context, client testpb.TestServiceClient) error {
	if _, err := client.UnaryCall(ctx, &testpb.SimpleRequest{}); err != nil {
		return err
	}
	stream, err := client.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{
		ResponseParameters: []*testpb.ResponseParameters{{Size: 1}},
	})
	if err != nil {
		return err
	}
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
