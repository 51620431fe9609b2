package controlplane_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
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
	ask := func(method string, node *corepb.Node, typeURL, name string) (reply, error) {
		c := openClient(t, conn, method)
		c.request(request{node: node, typeURL: typeURL, names: []string{name}})
		return c.receive()
	}
	const delta = adsService + "DeltaAggregatedResources"
	// dpds asks for the constraints of DPDS: on the aggregated stream, on a stream of its own, or by Fetch.
	dpds := []func(*corepb.Node) error{
		func(node *corepb.Node) error {
			_, err := ask(delta, node, dynparam.MapTypeURL, dpdsName)
			return err
		},
		func(node *corepb.Node) error {
			_, err := ask(dpdsService+"StreamDynamicParameterConstraints", node, "", dpdsName)
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
	if _, err := ask(delta, nodeOfService("bank"), eds, "shop.a"); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "node.metadata.service") {
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
		for name, want := range map[string]string{"shop.a": "-shop.a", "bank.a": "!bank.a: PermissionDenied"} {
			if r, err := ask(delta, node, eds, name); err != nil || !slices.Equal(r.content, []string{want}) {
				t.Errorf("as %v: %v, %v, want %q", node, r.content, err, want)
			}
		}
	}
	for _, service := range decided {
		xdstest.Equal(t, "the service that variants were chosen for", "cart", service)
	}
}

// nodeOfService is a node that claims to be a service.
func nodeOfService(service string) *corepb.Node {
	return &corepb.Node{Id: "n", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"service": structpb.NewStringValue(service)}}}
}
