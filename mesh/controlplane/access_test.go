package controlplane_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	twin "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// The node that decides about variants is the one of the client's certificate: a client that claims to be another is
// refused before anything is decided by the claim, and what it leaves out is filled in.
func TestOptions_Access(t *testing.T) {
	t.Parallel()
	rules, err := controlplane.ParseAccess([]byte(`[
		{"san": "spiffe://mesh/sa/{service}", "names": ["shop.", "` + dpdsName + `"], "node": {"metadata": {"service": "{service}"}}}]`))
	xdstest.NoError(t, err)
	var mu sync.Mutex
	var decided []string
	decide := func(node *corepb.Node) dynparam.ByType {
		mu.Lock()
		defer mu.Unlock()
		decided = append(decided, node.GetMetadata().GetFields()["service"].GetStringValue())
		return dynparam.ByType{}
	}
	store := controlplane.NewStore()
	_, err = store.Update(func(tx *controlplane.Tx) {
		tx.SetDPDS(dpdsName, func(node *corepb.Node) (dynparam.ByType, error) { return decide(node), nil })
	})
	xdstest.NoError(t, err)
	control := controlplane.NewServer(store, controlplane.Options{Access: rules, NodeConstraints: decide})
	ca := testca.New(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(ca.ServerConfig())), grpc.WaitForHandlers(true))
	control.Register(server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		control.Close()
		server.Stop()
		serving.Wait()
	})
	uri, err := url.Parse("spiffe://mesh/sa/cart")
	xdstest.NoError(t, err)
	config := ca.ClientConfig(false)
	config.Certificates = []tls.Certificate{ca.Pair(&x509.Certificate{URIs: []*url.URL{uri}})}
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	xdstest.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	ask := func(node *corepb.Node, name string) (*deltaResponse, error) {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		stream, err := discoverypb.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
		xdstest.NoError(t, err)
		xdstest.NoError(t, stream.Send(&deltaRequest{Node: node, TypeUrl: eds, ResourceNamesSubscribe: []string{name}}))
		return stream.Recv()
	}
	// dpds asks for the constraints of DPDS: on the aggregated stream, on a stream of its own, or by Fetch.
	dpds := []func(*corepb.Node) error{
		func(node *corepb.Node) error {
			stream := newRawClient(t, openTwin[twin.DeltaDiscoveryRequest, twin.DeltaDiscoveryResponse](conn, "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"))
			stream.send(&twin.DeltaDiscoveryRequest{Node: node, TypeUrl: dynparam.MapTypeURL, ResourceNamesSubscribe: []string{dpdsName}})
			_, err := stream.stream.Recv()
			return err
		},
		func(node *corepb.Node) error {
			stream := newRawClient(t, openTwin[twin.DiscoveryRequest, twin.DiscoveryResponse](conn, dpdsService+"StreamDynamicParameterConstraints"))
			stream.send(&twin.DiscoveryRequest{Node: node, ResourceNames: []string{dpdsName}})
			_, err := stream.stream.Recv()
			return err
		},
		func(node *corepb.Node) error {
			req, resp := &twin.DiscoveryRequest{Node: node, ResourceNames: []string{dpdsName}}, new(twin.DiscoveryResponse)
			return conn.Invoke(testContext(t), dpdsService+"FetchDynamicParameterConstraints", req, resp, grpc.WaitForReady(true))
		},
	}
	for i, get := range dpds {
		if err := get(nodeOfService("bank")); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "node.metadata.service") {
			t.Errorf("DPDS by way %d, with another's node: %v", i, err)
		}
	}
	if _, err := ask(nodeOfService("bank"), "shop.a"); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "node.metadata.service") {
		t.Errorf("with another's node: %v", err)
	}
	if len(decided) > 0 {
		t.Errorf("variants were chosen for %q, a claim that is refused", decided)
	}
	for _, node := range []*corepb.Node{nodeOfService("cart"), {Id: "any"}, nil} {
		for i, get := range dpds {
			before := len(decided)
			if err := get(node); err != nil || len(decided) < before+2 { // variants, and DPDS
				t.Errorf("DPDS by way %d, as %v: %v, decided %d times", i, node, err, len(decided)-before)
			}
		}
		resp, err := ask(node, "shop.a")
		if err != nil || len(resp.GetRemovedResources()) != 1 {
			t.Errorf("as %v: %v, %v", node, resp, err)
		}
		resp, err = ask(node, "bank.a")
		if err != nil || codes.Code(resp.GetResourceErrors()[0].GetErrorDetail().GetCode()) != codes.PermissionDenied {
			t.Errorf("as %v, another's name: %v, %v", node, resp, err)
		}
	}
	for _, service := range decided {
		if service != "cart" {
			t.Errorf("variants were chosen for the service %q", service)
		}
	}
}

// nodeOfService is a node that claims to be a service.
func nodeOfService(service string) *corepb.Node {
	return &corepb.Node{Id: "n", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"service": structpb.NewStringValue(service)}}}
}
