package e2e_test

import (
	"context"
	"io"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/testutils"
)

// serveReporting configures the service with a reporting cluster that has endpoints in these localities.
func (m *loadMesh) serveReporting(c *clusterpb.Cluster, localities ...xdsmsg.Locality) {
	m.t.Helper()
	m.set(chain(service, toCluster(c.GetName())), c, xdsmsg.Endpoints(c.GetName()+"-eds", localities...))
}

// loadMesh is a mesh whose control plane collects load reports.
type loadMesh struct {
	*mesh
	loads *controlplane.LoadReports
}

// newLoadMesh asks for reports as often as clients send them, every second.
func newLoadMesh(t *testing.T) *loadMesh {
	t.Helper()
	directly(t, "the reports are those of the client itself")
	loads := controlplane.NewLoadReports(controlplane.LoadOptions{Interval: time.Second})
	m := overServer(t, meshtest.Start(t, meshtest.Options{Loads: loads}))
	t.Cleanup(loads.Close)
	return &loadMesh{m, loads}
}

// reporting is a cluster whose load is reported, with those metrics of its backends.
func reporting(name string, metrics ...string) *clusterpb.Cluster {
	c := with(xdsmsg.EDSCluster(name, name+"-eds"), `lrs_server { self {} }`)
	c.LrsReportEndpointMetrics = metrics
	return c
}

// loadOf is the load of a reporting cluster.
func loadOf(name string, localities ...controlplane.LocalityLoad) controlplane.ClusterLoad {
	return controlplane.ClusterLoad{Cluster: name, Service: name + "-eds", Localities: localities}
}

// expect waits until the reports add up to want.
func (m *loadMesh) expect(when string, want ...controlplane.ClusterLoad) {
	m.t.Helper()
	diff := ""
	if _, err := m.loads.Await(testutils.Context(m.t), func(got []controlplane.ClusterLoad) bool {
		diff = cmp.Diff(want, got, cmpopts.EquateEmpty())
		return diff == ""
	}); err != nil {
		m.t.Fatalf("%s: %v (-want +got):\n%s", when, err, diff)
	}
}

// rpcs makes n RPCs of each of the kinds, by default of all, and returns how many failed.
func rpcs(t *testing.T, cc *grpc.ClientConn, n int, of ...kind) (failed uint64) {
	t.Helper()
	if len(of) == 0 {
		of = kinds
	}
	for range n {
		for _, k := range of {
			if _, err := call(testutils.Context(t), cc, k, grpc.WaitForReady(true)); err != nil {
				failed++
			}
		}
	}
	return failed
}

// openStreams opens n streams, on which no message was sent.
func openStreams(ctx context.Context, t testing.TB, cc *grpc.ClientConn, n int) (streams []duplex) {
	t.Helper()
	for range n {
		s, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(ctx, grpc.WaitForReady(true))
		xdstest.NoError(t, err)
		streams = append(streams, s)
	}
	return streams
}

// hold opens n streams, each with an answer, that stay until release is called.
func hold(t *testing.T, cc *grpc.ClientConn, n int) (release func()) {
	t.Helper()
	streams := openStreams(testutils.Context(t), t, cc, n)
	for _, s := range streams {
		_, err := s.Header()
		xdstest.NoError(t, err)
	}
	return func() {
		for _, s := range streams {
			xdstest.NoError(t, s.CloseSend())
			if _, err := s.Recv(); err != io.EOF {
				t.Errorf("the stream ended with %v", err)
			}
		}
	}
}

// gRFC A27 and load_report.proto: exactly what there was, by locality, of all kinds
// of RPC, those on their way included.
func TestLoadReportsCountByLocality(t *testing.T) {
	everyWay(t)
	t.Parallel()
	m := newLoadMesh(t)
	near, far := testutils.StartBackend(t, "near"), testutils.StartBackend(t, "far")
	far.Fail(status.Error(codes.NotFound, "not here"))
	west := xdsmsg.In("west", far.Addr())
	west.Region, west.SubZone = "eu", "rack"
	east := xdsmsg.In("east", near.Addr())
	east.Weight = 3
	m.serveReporting(reporting("blue"), east, west)
	cc := m.dial("xds:///" + service)
	// Both localities are connected from here on.
	ok, notFound := reachBoth(t, cc)
	// No streams: when the server ends one with an error before it has read what the
	// client sends, gRPC-Go 1.85 may tell the balancer that it has succeeded
	// (clientStream.retryLocked finishes the attempt with the io.EOF of SendMsg).
	failed := rpcs(t, cc, 40, unary)
	ok, notFound = ok+40-failed, notFound+failed
	far.Fail(nil)
	unaryFar := far.Count()
	end := hold(t, cc, 8)
	distant := uint64(far.Count() - unaryFar)
	want := func(ended bool) controlplane.ClusterLoad {
		east := controlplane.LocalityLoad{Zone: "east", Issued: ok + 8 - distant, Succeeded: ok, InProgress: 8 - distant}
		west := controlplane.LocalityLoad{
			Region: "eu", Zone: "west", SubZone: "rack",
			Issued: notFound + distant, Failed: notFound, InProgress: distant,
		}
		if ended {
			east.Succeeded, east.InProgress = east.Issued, 0
			west.Succeeded, west.InProgress = distant, 0
		}
		return loadOf("blue", east, west)
	}
	m.expect("with 8 streams on their way", want(false))
	end()
	m.expect("when they have ended", want(true))
}

// reachBoth makes RPCs until one has succeeded and one has failed with NOT_FOUND, and
// returns how many did.
func reachBoth(t *testing.T, cc *grpc.ClientConn) (ok, notFound uint64) {
	t.Helper()
	for ok == 0 || notFound == 0 {
		_, err := call(testutils.Context(t), cc, unary, grpc.WaitForReady(true))
		switch status.Code(err) {
		case codes.OK:
			ok++
		case codes.NotFound:
			notFound++
		default:
			t.Fatal(err)
		}
	}
	return ok, notFound
}
