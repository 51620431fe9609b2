package discoveryv3_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"

	publishedv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// answering serves the twin of the aggregated service. It answers a request with what
// it asks for.
type answering struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
}

func (answering) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	request, err := stream.Recv()
	if err != nil {
		return err
	}
	return stream.Send(&discoveryv3.DiscoveryResponse{
		TypeUrl:   request.GetTypeUrl(),
		Nonce:     request.GetNode().GetId(),
		Resources: []*anypb.Any{{TypeUrl: request.GetTypeUrl(), Value: []byte(request.GetResourceNames()[0])}},
	})
}

// A server of the twins, given the published name, serves a client of the published
// service.
func TestTwinServesAPublishedClient(t *testing.T) {
	t.Parallel()
	service := discoveryv3.AggregatedDiscoveryService_ServiceDesc
	service.ServiceName = publishedv3.AggregatedDiscoveryService_ServiceDesc.ServiceName

	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	server.RegisterService(&service, answering{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient("passthrough:///twin", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stream, err := publishedv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&publishedv3.DiscoveryRequest{TypeUrl: "T", ResourceNames: []string{"a resource"}}); err != nil {
		t.Fatal(err)
	}
	response, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("a resource", string(response.GetResources()[0].GetValue())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Each published method is there, with the same kinds of streams.
func TestTwinHasEveryPublishedMethod(t *testing.T) {
	t.Parallel()
	type method struct{ client, server bool }
	methods := func(d grpc.ServiceDesc) map[string]method {
		all := make(map[string]method)
		for _, s := range d.Streams {
			all[s.StreamName] = method{s.ClientStreams, s.ServerStreams}
		}
		for _, m := range d.Methods {
			all[m.MethodName] = method{}
		}
		return all
	}
	want, got := methods(publishedv3.AggregatedDiscoveryService_ServiceDesc), methods(discoveryv3.AggregatedDiscoveryService_ServiceDesc)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(method{})); diff != "" {
		t.Errorf("(-published +twin):\n%s", diff)
	}
}
