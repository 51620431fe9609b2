package relay_test

import (
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadpb "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/relay"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// BenchmarkIdleLoadReports measures a second of 1,000 clients without RPCs, which report once in it, to a relay that knows
// 1,000 clusters. The CPU time includes that of the clients.
func BenchmarkIdleLoadReports(b *testing.B) {
	const clients, clusters = 1000, 1000
	cfg, err := bootstrap.Parse("test", []byte(`{
		"xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}]}],
		"node": {"id": "relay"}
	}`))
	xdstest.NoError(b, err)
	r, err := relay.New(relay.Options{Bootstrap: cfg, Log: slog.New(slog.DiscardHandler)})
	xdstest.NoError(b, err)
	defer r.Close()
	server := grpc.NewServer()
	defer server.Stop()
	r.Register(server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(b, err)
	go server.Serve(listener)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	xdstest.NoError(b, err)
	defer conn.Close()
	streams := make([]loadpb.LoadReportingService_StreamLoadStatsClient, clients)
	for i := range streams {
		streams[i], err = loadpb.NewLoadReportingServiceClient(conn).StreamLoadStats(b.Context())
		xdstest.NoError(b, err)
		xdstest.NoError(b, streams[i].Send(&loadpb.LoadStatsRequest{Node: &corepb.Node{Id: fmt.Sprint(i)}}))
		_, err = streams[i].Recv()
		xdstest.NoError(b, err)
	}
	known := &loadpb.LoadStatsRequest{}
	for i := range clusters {
		known.ClusterStats = append(known.ClusterStats, &endpointpb.ClusterStats{
			ClusterName:           fmt.Sprint("cluster", i),
			UpstreamLocalityStats: []*endpointpb.UpstreamLocalityStats{{Locality: &corepb.Locality{Zone: "a"}, TotalIssuedRequests: 1}},
		})
	}
	xdstest.NoError(b, streams[0].Send(known))
	time.Sleep(2 * time.Second) // the relay has passed that on
	before := cpu(b)
	for b.Loop() {
		began := time.Now()
		for i, s := range streams { // spread over the second, as those of clients that do not know of each other
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / clients)))
			xdstest.NoError(b, s.Send(new(loadpb.LoadStatsRequest)))
		}
	}
	b.ReportMetric(float64((cpu(b)-before).Milliseconds())/float64(b.N), "cpu-ms/s")
}

// cpu returns the CPU time of the process.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	xdstest.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
