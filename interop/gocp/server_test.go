package gocp_test

import (
	"context"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/gocp"
	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type stream = discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesClient

// subscribe opens a stream and asks for clusters, as a client does that has
// them in the given version.
func subscribe(ctx context.Context, t *testing.T, cc *grpc.ClientConn, version string, clusters ...string) stream {
	t.Helper()
	s, err := discoverypb.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	xdstest.NoError(t, err)
	if err := s.Send(&discoverypb.DiscoveryRequest{
		Node: &corepb.Node{Id: gocp.NodeID}, TypeUrl: xdsmsg.ClusterType, ResourceNames: clusters, VersionInfo: version,
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// receive returns version and number of the resources of the next response.
func receive(t *testing.T, s stream) (version string, resources int) {
	t.Helper()
	r, err := s.Recv()
	xdstest.NoError(t, err)
	return r.GetVersionInfo(), len(r.GetResources())
}

func TestServerServesAndRestarts(t *testing.T) {
	for _, mode := range gocp.Modes {
		xdstest.Parallel(t, mode.String(), func(t *testing.T) {
			ctx := testutils.Context(t)
			s := gocp.Start(t, mode)
			cc, err := grpc.NewClient("passthrough:///"+s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			xdstest.NoError(t, err)
			t.Cleanup(func() { cc.Close() })

			first := subscribe(ctx, t, cc, "", "a")
			s.Set(t, xdsmsg.EDSCluster("a", ""))
			if v, n := receive(t, first); v != "1" || n != 1 {
				t.Errorf("version %q with %d clusters, want 1 with 1", v, n)
			}

			s.Stop()
			if _, err := first.Recv(); status.Code(err) != codes.Unavailable {
				t.Errorf("Stop ended the stream with %v, want UNAVAILABLE", err)
			}

			s.Restart(t, xdsmsg.EDSCluster("a", "other"))
			second := subscribe(ctx, t, cc, "1", "a")
			if v, n := receive(t, second); v != "1" || n != 1 {
				t.Errorf("after the restart version %q with %d clusters, want 1 with 1", v, n)
			}

			want := []gocp.Request{
				{Stream: 1, TypeURL: xdsmsg.ClusterType, Names: []string{"a"}},
				{Stream: 2, TypeURL: xdsmsg.ClusterType, Names: []string{"a"}, Version: "1"},
			}
			xdstest.Equal(t, "requests", want, s.Requests(), cmpopts.IgnoreFields(gocp.Request{}, "Node"))
			if n := s.Streams(); n != 2 {
				t.Errorf("%d streams, want 2", n)
			}
		})
	}
}

// In ADS mode go-control-plane answers only requests that name all resources.
func TestADSModeWaitsForAllNames(t *testing.T) {
	t.Parallel()
	ctx := testutils.Context(t)
	s := gocp.Start(t, gocp.ADSMode)
	cc, err := grpc.NewClient("passthrough:///"+s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	xdstest.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	s.Set(t, xdsmsg.EDSCluster("a", ""), xdsmsg.EDSCluster("b", ""))
	stream := subscribe(ctx, t, cc, "", "a")
	xdstest.NoError(t, stream.Send(&discoverypb.DiscoveryRequest{TypeUrl: xdsmsg.ClusterType, ResourceNames: []string{"a", "b"}}))
	if _, n := receive(t, stream); n != 2 {
		t.Errorf("the first response has %d clusters, want 2: the request for one is not answered", n)
	}
}
