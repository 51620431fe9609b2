package dpdswrapper_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	publishedv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/dpdswrapper"
	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// adsServer is a server of TP2's messages that exposes requests, and sends given responses.
type adsServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	requests  chan *discoveryv3.DiscoveryRequest
	responses chan *discoveryv3.DiscoveryResponse
}

func (s *adsServer) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	go func() {
		for {
			select {
			case r := <-s.responses:
				if stream.Send(r) != nil {
					return
				}
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case s.requests <- r:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// request returns the next request that is not the ACK of a DPDS resource.
func (s *adsServer) request(t *testing.T) *discoveryv3.DiscoveryRequest {
	t.Helper()
	for {
		select {
		case r := <-s.requests:
			if r.GetErrorDetail() != nil {
				t.Fatalf("NACK: %v", r)
			}
			if r.GetTypeUrl() != dynparam.MapTypeURL || r.GetResponseNonce() == "" {
				return r
			}
		case <-time.After(30 * time.Second):
			t.Fatal("no request")
		}
	}
}

// Over a real stream, the DPDS resource, which is named by its wrapper, is requested first, then
// all that waited for it, with its constraints and one request per type. When it changes, the
// type whose constraints changed moves with one request.
func TestDPDSOverAStream(t *testing.T) {
	t.Parallel()
	ads := &adsServer{requests: make(chan *discoveryv3.DiscoveryRequest, 100), responses: make(chan *discoveryv3.DiscoveryResponse)}
	server, listener := grpc.NewServer(), bufconn.Listen(1<<20)
	service := discoveryv3.AggregatedDiscoveryService_ServiceDesc
	service.ServiceName = publishedv3.AggregatedDiscoveryService_ServiceDesc.ServiceName
	server.RegisterService(&service, ads)
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	client, err := xdsclient.New(config(authorities), xdsclient.WithDialOptions(
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) })))
	xdstest.NoError(t, err)
	defer func() {
		client.Close()
		server.Stop()
		<-served
	}()
	w := dpdswrapper.New(client).ForTarget("")
	const clusters = 1000
	for i := range clusters {
		w.Watch(xdsresource.ClusterType, name("a", clusterType, fmt.Sprint(i)), quiet{})
	}
	w.Watch(xdsresource.EndpointsType, name("a", "envoy.config.endpoint.v3.ClusterLoadAssignment", "e"), quiet{})
	first := ads.request(t)
	if first.GetTypeUrl() != dynparam.MapTypeURL || len(first.GetResourceNames()) != 1 || first.GetResourceNames()[0] != dpdsA {
		t.Fatalf("first request %v, want one for %s", first, dpdsA)
	}
	for _, v := range []string{"1", "2"} {
		ads.responses <- dpdsResponse(t, "n"+v, only(clusterType, "v", v))
		for _, want := range []struct {
			url         string
			names       int
			constraints dynparam.Constraints
		}{{typeurl.Cluster, clusters, exact("v", v)}, {typeurl.Endpoints, 1, dynparam.Constraints{}}} {
			if v == "2" && want.constraints.IsZero() {
				continue // a type whose constraints did not change
			}
			r := ads.request(t)
			if r.GetTypeUrl() != want.url || len(r.GetResourceNames()) != want.names || len(r.GetResourceLocators()) != want.names {
				t.Errorf("request for %d names and %d locators of %s, want %d of %s",
					len(r.GetResourceNames()), len(r.GetResourceLocators()), r.GetTypeUrl(), want.names, want.url)
			}
			for _, l := range r.GetResourceLocators() {
				if got := must(dynparam.FromProto(l.GetDynamicParameterConstraints())); !got.Equal(want.constraints) {
					t.Fatalf("%s is asked for with %v, want %v", l.GetName(), got, want.constraints)
				}
			}
		}
	}
}

// dpdsResponse has the DPDS resource of authority "a".
func dpdsResponse(t *testing.T, nonce string, constraints dynparam.ByType) *discoveryv3.DiscoveryResponse {
	t.Helper()
	wrapped, err := anypb.New(&publishedv3.Resource{
		Name:         dpdsA,
		Resource:     must(dynwire.MarshalMap(constraints.ToProto())),
		CacheControl: &publishedv3.Resource_CacheControl{DoNotCache: true},
	})
	xdstest.NoError(t, err)
	return &discoveryv3.DiscoveryResponse{
		TypeUrl: dynparam.MapTypeURL, VersionInfo: nonce, Nonce: nonce, Resources: []*anypb.Any{wrapped},
		ControlPlane: &corev3.ControlPlane{Identifier: "test"},
	}
}
