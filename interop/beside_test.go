package interop_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/admin"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	estats "google.golang.org/grpc/experimental/stats"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	grpccsds "google.golang.org/grpc/xds/csds"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/gocp"
	"github.com/dynxds/dynxds/mesh/meshtest/load"
	"github.com/dynxds/dynxds/observe/csds"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/testutils"
)

// grpcUserAgent is the user agent in the node of gRPC-Go's xds.
const grpcUserAgent = "gRPC Go"

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

// The interceptors of dynxds, which every channel of the scheme "xds" has, do nothing if gRPC-Go's xds resolves the
// channel.
func TestGRPCGoChannelsPassStraightThrough(t *testing.T) {
	xdstest.Parallel(t, "RPCs wait in gRPC for the first configuration", func(t *testing.T) {
		control := gocp.Start(t, gocp.AnyNames)
		cc := dial(t, builderOf(t, grpcGo, control.Bootstrap()), "xds:///"+service)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := testpb.NewTestServiceClient(cc).EmptyCall(ctx, &testpb.Empty{})
		if status.Code(err) != codes.DeadlineExceeded || strings.Contains(err.Error(), "xDS configuration") {
			t.Errorf("the RPC ended with %v, want gRPC's own DEADLINE_EXCEEDED", err)
		}
	})
	xdstest.Parallel(t, "beside a channel of dynxds", func(t *testing.T) {
		w := newWorld(t, gocp.AnyNames, nil)
		rpcs := load.Start(t, dial(t, builderOf(t, grpcGo, w.control.Bootstrap()), "xds:///"+service))
		rpcs.WaitForBackends(t, "blue")
		w.control.Set(t, append(w.initial()[:3:3], w.endpoints("blue", w.green))...)
		rpcs.WaitForBackends(t, "green")
		w.load.WaitForBackends(t, "green")
		xdstest.Equal(t, "who asked the control plane", map[string]bool{grpcUserAgent: true, "dynxds": true}, userAgents(w.control))
	})
}

// lostScheme starts the error that the log has of the first channel with RPCs that dynxds lost.
const lostScheme = "dynxds does not serve the channel to"

// The ways of a program that imports both packages to choose who resolves "xds:///". Without
// a choice gRPC-Go has it, since Go initializes it after dynxds.
var choices = []struct {
	child string            // what childVariable says
	want  map[string]string // the user agent of who resolves each scheme
	lost  bool              // the log says that dynxds lost the scheme
}{
	{bothSchemesChild, map[string]string{"xds": grpcUserAgent, "dynxds": "dynxds"}, true},
	{dialOptionsChild, map[string]string{"xds": "dynxds", "dynxds": "dynxds"}, false},
	{someDialOptionsChild, map[string]string{"xds": grpcUserAgent, "dynxds": "dynxds"}, true},
	{registerChild, map[string]string{"xds": "dynxds", "dynxds": "dynxds"}, false},
}

// In a program that imports both packages, each scheme is resolved by the package that the program has chosen, and the
// log has one error if dynxds does not serve "xds".
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
			got, agents := map[string]string{}, map[uint64]string{} // by scheme and by stream, whose first request has the node
			for _, r := range w.control.Requests() {
				if r.Node != nil {
					agents[r.Stream] = r.Node.GetUserAgentName()
				}
				for _, scheme := range schemes {
					if r.TypeURL == xdsmsg.ListenerType && slices.Contains(r.Names, serviceOf(scheme)) {
						got[scheme] = agents[r.Stream]
					}
				}
			}
			xdstest.Equal(t, "who resolved which scheme", choice.want, got)
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

// meter is a stats handler that collects the metrics of xDS clients, whoever
// registered them.
type meter struct {
	noStats
	estats.UnimplementedMetricsRecorder

	state     xdstest.State
	names     map[string]bool // of all metrics
	counts    map[string]int64
	reporters []estats.AsyncMetricReporter
}

func newMeter() *meter { return &meter{names: map[string]bool{}, counts: map[string]int64{}} }

var _ stats.Handler = (*meter)(nil)

func (m *meter) RecordInt64Count(h *estats.Int64CountHandle, n int64, labels ...string) {
	if h.Descriptor() != estats.DescriptorForMetric(h.Name) {
		panic(h.Name + " is recorded with a descriptor that is not in gRPC's registry, which a stats plugin would drop")
	}
	m.state.Change(func() {
		m.names[h.Name] = true
		m.counts[h.Name+" "+strings.Join(labels, " ")] += n
	})
}

func (m *meter) RecordInt64UpDownCount(h *estats.Int64UpDownCountHandle, _ int64, _ ...string) {
	m.state.Change(func() { m.names[h.Name] = true })
}

func (m *meter) RecordFloat64Histo(h *estats.Float64HistoHandle, _ float64, _ ...string) {
	m.state.Change(func() { m.names[h.Name] = true })
}

func (m *meter) RegisterAsyncReporter(r estats.AsyncMetricReporter, _ ...estats.AsyncMetric) func() {
	m.state.Change(func() { m.reporters = append(m.reporters, r) })
	return func() {}
}

type gauges map[string]int64

func (g gauges) RecordInt64AsyncGauge(h *estats.Int64AsyncGaugeHandle, value int64, labels ...string) {
	if h.Descriptor() != estats.DescriptorForMetric(h.Name) {
		panic(h.Name + " is recorded with a descriptor that is not in gRPC's registry, which a stats plugin would drop")
	}
	g[h.Name+" "+strings.Join(labels, " ")] = value
}

// read returns the metrics of the xDS client as they are now.
func (m *meter) read(t *testing.T) map[string]int64 {
	t.Helper()
	var all gauges
	var reporters []estats.AsyncMetricReporter
	m.state.Change(func() { all, reporters = maps.Clone(m.counts), m.reporters })
	for _, r := range reporters {
		if err := r.Report(all); err != nil {
			t.Error(err)
		}
	}
	maps.DeleteFunc(all, func(name string, _ int64) bool { return !strings.HasPrefix(name, "grpc.xds_client.") })
	return all
}

// typeLabels are the values that gRPC-Go gives grpc.xds.resource_type, and those
// that gRFC A78 wants.
var typeLabels = strings.NewReplacer(
	"ListenerResource", "envoy.config.listener.v3.Listener",
	"RouteConfigResource", "envoy.config.route.v3.RouteConfiguration",
	"ClusterResource", "envoy.config.cluster.v3.Cluster",
	"EndpointsResource", "envoy.config.endpoint.v3.ClusterLoadAssignment",
)

// Channels of dynxds and of gRPC-Go's xds in one process report the same metrics (gRFC A78) for the same resources, with
// the descriptors of gRPC's registry.
func TestMetricsOfBothPackages(t *testing.T) {
	t.Parallel()
	control := gocp.Start(t, gocp.AnyNames)
	w := &world{control: control, blue: testutils.StartBackend(t, "blue")}
	control.Set(t, w.initial()...)
	mine, theirs := newMeter(), newMeter()
	for _, rpcs := range []*load.Load{
		load.Start(t, dial(t, builderOf(t, ours, control.Bootstrap()), "xds:///"+service, grpc.WithStatsHandler(mine))),
		load.Start(t, dial(t, builderOf(t, grpcGo, control.Bootstrap()), "xds:///"+service, grpc.WithStatsHandler(theirs))),
	} {
		rpcs.WaitForBackends(t, "blue")
		rpcs.Stop(t)
	}
	got, want := mine.read(t), map[string]int64{}
	for name, value := range theirs.read(t) {
		want[typeLabels.Replace(name)] = value
	}
	if len(want) == 0 {
		t.Fatal("gRPC-Go's xds reported nothing")
	}
	xdstest.Equal(t, "the metrics (wanted: gRPC-Go's)", want, got)
}

// Registering the CSDS of dynxds on a server that has gRPC-Go's, by admin.Register, is an error and does not end the
// process.
func TestCSDSAfterAdminRegister(t *testing.T) {
	t.Parallel()
	s := grpc.NewServer()
	cleanup, err := admin.Register(s)
	xdstest.NoError(t, err)
	defer cleanup()
	if err := csds.Register(s); err == nil {
		t.Error("csds.Register accepts a server that has a CSDS")
	}
}

// captured is a registrar that keeps the CSDS it is given.
type captured struct {
	service statuspb.ClientStatusDiscoveryServiceServer
}

func (c *captured) RegisterService(_ *grpc.ServiceDesc, impl any) {
	c.service = impl.(statuspb.ClientStatusDiscoveryServiceServer)
}

// compareCSDS compares what the CSDS of both packages say of the resources that
// the channels of both use. It is for the child of TestBothSchemesInOneProcess:
// gRPC-Go's knows only clients that are configured by the environment.
func compareCSDS(ctx context.Context) error {
	theirs, err := grpccsds.NewClientStatusDiscoveryServer()
	if err != nil {
		return err
	}
	defer theirs.Close()
	var ours captured
	if err := csds.Register(&ours); err != nil {
		return err
	}
	var shared []map[string]*statuspb.ClientConfig_GenericXdsConfig
	for _, s := range []statuspb.ClientStatusDiscoveryServiceServer{theirs, ours.service} {
		resp, err := s.FetchClientStatus(ctx, &statuspb.ClientStatusRequest{})
		if err != nil {
			return err
		}
		if n := len(resp.GetConfig()); n != 1 {
			return fmt.Errorf("a CSDS answer has %d ClientConfigs, want 1: grpcdebug takes no more", n)
		}
		all := map[string]*statuspb.ClientConfig_GenericXdsConfig{}
		for _, c := range resp.GetConfig()[0].GetGenericXdsConfigs() {
			if !strings.Contains(c.GetTypeUrl(), "Listener") && c.GetName() != csds.StateName { // each scheme has its own Listener
				all[c.GetTypeUrl()+" "+c.GetName()] = c
			}
		}
		shared = append(shared, all)
	}
	if len(shared[0]) != 3 {
		return fmt.Errorf("gRPC-Go's CSDS has %q, want a route, a cluster and endpoints", slices.Collect(maps.Keys(shared[0])))
	}
	diff := cmp.Diff(shared[0], shared[1], protocmp.Transform(),
		protocmp.IgnoreFields(&statuspb.ClientConfig_GenericXdsConfig{}, "last_updated"))
	if diff != "" {
		return errors.New("CSDS (-gRPC-Go's +dynxds'):\n" + diff)
	}
	return nil
}
