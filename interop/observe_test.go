package interop_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/admin"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/stats"
	grpccsds "google.golang.org/grpc/xds/csds"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/dynxds/dynxds/csds"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/gocp"
	"github.com/dynxds/dynxds/interop/load"
	"github.com/dynxds/dynxds/testutils"
)

// meter is a stats handler that collects the metrics of xDS clients, whoever
// registered them.
type meter struct {
	estats.UnimplementedMetricsRecorder

	mu        sync.Mutex
	counts    map[string]int64
	reporters []estats.AsyncMetricReporter
}

var _ stats.Handler = (*meter)(nil)

func (*meter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*meter) HandleRPC(context.Context, stats.RPCStats)                         {}
func (*meter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*meter) HandleConn(context.Context, stats.ConnStats)                       {}

func (m *meter) RecordInt64Count(h *estats.Int64CountHandle, n int64, labels ...string) {
	if h.Descriptor() != estats.DescriptorForMetric(h.Name) {
		panic(h.Name + " is recorded with a descriptor that is not in gRPC's registry, which a stats plugin would drop")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[h.Name+" "+strings.Join(labels, " ")] += n
}

func (m *meter) RegisterAsyncReporter(r estats.AsyncMetricReporter, _ ...estats.AsyncMetric) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reporters = append(m.reporters, r)
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
	m.mu.Lock()
	defer m.mu.Unlock()
	all := gauges(maps.Clone(m.counts))
	for _, r := range m.reporters {
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

// TestMetricsOfBothPackages: given a process with dynxds and gRPC-Go's xds, both
// of which have the metrics of gRFC A78; when a channel of each is served the same
// resources; then both report the same, with the descriptors of gRPC's registry.
func TestMetricsOfBothPackages(t *testing.T) {
	t.Parallel()
	control := gocp.Start(t, gocp.AnyNames)
	w := &world{control: control, blue: testutils.StartBackend(t, "blue")}
	control.Set(t, w.initial()...)
	ours, theirs := &meter{counts: map[string]int64{}}, &meter{counts: map[string]int64{}}
	for _, rpcs := range []*load.Load{
		load.Start(t, dial(t, dynxdsBuilder(t, control), "xds:///"+service, grpc.WithStatsHandler(ours))),
		load.Start(t, dial(t, grpcGoBuilder(t, control), "xds:///"+service, grpc.WithStatsHandler(theirs))),
	} {
		rpcs.WaitForBackends(t, "blue")
		rpcs.Stop(t)
	}
	got, want := ours.read(t), map[string]int64{}
	for name, value := range theirs.read(t) {
		want[typeLabels.Replace(name)] = value
	}
	if len(want) == 0 {
		t.Fatal("gRPC-Go's xds reported nothing")
	}
	xdstest.Equal(t, "the metrics (wanted: gRPC-Go's)", want, got)
}

// TestCSDSAfterAdminRegister: given gRPC-Go's xds, whose CSDS admin.Register adds
// to a server; when the CSDS of dynxds is registered on it; then that is an error,
// and not the end of the process.
func TestCSDSAfterAdminRegister(t *testing.T) {
	t.Parallel()
	s := grpc.NewServer()
	cleanup, err := admin.Register(s)
	xdstest.NoError(t, err)
	defer cleanup()
	if err := csds.Register(s); err == nil {
		t.Error("csds.Register took a server that has a CSDS")
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
			if !strings.Contains(c.GetTypeUrl(), "Listener") { // each scheme has its own
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
