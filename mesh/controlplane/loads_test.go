package controlplane_test

import (
	"context"
	"io"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadpb "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// loadWorld is LoadReports on a real port, and a way to it.
type loadWorld struct {
	*controlplane.LoadReports
	t      *testing.T
	client loadpb.LoadReportingServiceClient
}

func newLoadWorld(t *testing.T, opts controlplane.LoadOptions) *loadWorld {
	t.Helper()
	reports := controlplane.NewLoadReports(opts)
	return &loadWorld{LoadReports: reports, t: t, client: loadpb.NewLoadReportingServiceClient(serve(t, reports))}
}

// reportingClient is a stream that has introduced itself.
type reportingClient struct {
	stream loadpb.LoadReportingService_StreamLoadStatsClient
	order  *loadpb.LoadStatsResponse
}

func (w *loadWorld) join() *reportingClient {
	w.t.Helper()
	ctx, leave := context.WithTimeout(w.t.Context(), 30*time.Second)
	w.t.Cleanup(leave)
	s, err := w.client.StreamLoadStats(ctx)
	xdstest.NoError(w.t, err)
	xdstest.NoError(w.t, s.Send(&loadpb.LoadStatsRequest{Node: &corepb.Node{Id: "n"}}))
	order, err := s.Recv()
	xdstest.NoError(w.t, err)
	return &reportingClient{stream: s, order: order}
}

// lrs.proto, LoadStatsResponse: what clients are asked for.
func TestLoadReportsAsk(t *testing.T) {
	t.Parallel()
	for interval, want := range map[time.Duration]time.Duration{0: 10 * time.Second, time.Second: time.Second, -1: 10 * time.Second} {
		order := &loadpb.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: durationpb.New(want)}
		xdstest.Equal(t, "the order", order, newLoadWorld(t, controlplane.LoadOptions{Interval: interval}).join().order, protocmp.Transform())
	}
}

func TestLoadStreamsEnd(t *testing.T) {
	t.Parallel()
	w := newLoadWorld(t, controlplane.LoadOptions{})
	done := w.join()
	xdstest.NoError(t, done.stream.CloseSend())
	if _, err := done.stream.Recv(); err != io.EOF {
		t.Errorf("a stream whose client is done ended with %v, want OK", err)
	}
	s, err := w.client.StreamLoadStats(t.Context())
	xdstest.NoError(t, err)
	xdstest.NoError(t, s.Send(&loadpb.LoadStatsRequest{}))
	if _, err := s.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a stream without a node ended with %v, want INVALID_ARGUMENT", err)
	}
	open := w.join()
	w.Close()
	if _, err := open.stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("an open stream ended with %v, want UNAVAILABLE", err)
	}
	if s, err = w.client.StreamLoadStats(t.Context()); err == nil {
		_, err = s.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a stream after Close ended with %v, want UNAVAILABLE", err)
	}
}

// LoadOptions.Known decides by the client, too: here, by its address.
func TestLoadOfUnknownClusters(t *testing.T) {
	t.Parallel()
	w := newLoadWorld(t, controlplane.LoadOptions{Known: func(ctx context.Context, cluster string) bool {
		from, ok := peer.FromContext(ctx)
		return ok && from.Addr != nil && cluster == "known"
	}})
	xdstest.NoError(t, w.join().stream.Send(&loadpb.LoadStatsRequest{ClusterStats: []*endpointpb.ClusterStats{{ClusterName: "other"}, {ClusterName: "known"}}}))
	loads, err := w.Await(t.Context(), func(loads []controlplane.ClusterLoad) bool { return len(loads) > 0 })
	if err != nil || len(loads) != 1 || loads[0].Cluster != "known" {
		t.Errorf("got %v, %v, want the load of one cluster", loads, err)
	}
}
