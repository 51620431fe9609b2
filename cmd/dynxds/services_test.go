package main

import (
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/serve/servetest"
	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/testutils"
)

const adsService = "envoy.service.discovery.v3.AggregatedDiscoveryService"

// dialPlane connects to "dynxds serve" with certificates of ca, and, if identified, one of
// its own.
func dialPlane(t *testing.T, addr string, ca *testca.CA, identified bool) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(ca.ClientConfig(identified))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Health, reflection and channelz answer only clients with a certificate. At SIGTERM, SotW and
// delta streams end with UNAVAILABLE and the process with exit status 0.
func TestServicesOfServe(t *testing.T) {
	t.Parallel()
	ca, files := testca.New(t), testca.NewFiles(t)
	files.Issue(ca)
	dir := t.TempDir()
	write(t, dir, "a.yaml", "kind: Service\nname: a\n")
	p := startServe(t, dir, "--tls-cert", files.Cert, "--tls-key", files.Key, "--client-ca", files.CA)
	addr := p.address()
	conn := dialPlane(t, addr, ca, true)

	checkHealth(t, conn, dialPlane(t, addr, ca, false))
	servetest.CheckTools(t, conn)

	sotw, delta := subscribeSotW(t, conn), subscribeDelta(t, conn)
	p.drain()
	if _, err := sotw.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the SotW stream ended with %v, want UNAVAILABLE", err)
	}
	if _, err := delta.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the delta stream ended with %v, want UNAVAILABLE", err)
	}
}

func checkHealth(t *testing.T, conn, anonymous *grpc.ClientConn) {
	t.Helper()
	ctx := testutils.Context(t)
	for _, service := range []string{"", adsService} {
		request := &healthpb.HealthCheckRequest{Service: service}
		if got, err := healthpb.NewHealthClient(conn).Check(ctx, request); err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q is %v, %v, want SERVING", service, got, err)
		}
		if _, err := healthpb.NewHealthClient(anonymous).Check(ctx, request); status.Code(err) != codes.Unavailable {
			t.Errorf("without a certificate health of %q ended with %v, want UNAVAILABLE", service, err)
		}
	}
}

const clusterType = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

// subscribeSotW returns a stream that the server has answered.
func subscribeSotW(t *testing.T, conn *grpc.ClientConn) discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesClient {
	t.Helper()
	stream, err := discoverypb.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(testutils.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discoverypb.DiscoveryRequest{Node: &corepb.Node{Id: "sotw"}, TypeUrl: clusterType, ResourceNames: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	if answer, err := stream.Recv(); err != nil || len(answer.GetResources()) != 1 {
		t.Fatalf("the server answers %v, %v, want cluster a", answer, err)
	}
	return stream
}

// subscribeDelta returns a stream that the server has answered.
func subscribeDelta(t *testing.T, conn *grpc.ClientConn) discoverypb.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
	t.Helper()
	stream, err := discoverypb.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(testutils.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discoverypb.DeltaDiscoveryRequest{Node: &corepb.Node{Id: "delta"}, TypeUrl: clusterType, ResourceNamesSubscribe: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	if answer, err := stream.Recv(); err != nil || len(answer.GetResources()) != 1 {
		t.Fatalf("the server answers %v, %v, want cluster a", answer, err)
	}
	return stream
}
