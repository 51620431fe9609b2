package relay_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/relay"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// streamTo opens a delta stream with credentials.
func streamTo(t *testing.T, r *rig, addr string, creds credentials.TransportCredentials) *deltaStream {
	t.Helper()
	return openWith[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse](r.ctx, t, addr, "DeltaAggregatedResources", creds)
}

// identified returns the credentials of a client with this SPIFFE ID in its certificate.
func identified(t *testing.T, ca *testca.CA, id string) credentials.TransportCredentials {
	t.Helper()
	uri, err := url.Parse(id)
	xdstest.NoError(t, err)
	config := ca.ClientConfig(false)
	config.Certificates = []tls.Certificate{ca.Pair(&x509.Certificate{URIs: []*url.URL{uri}})}
	return credentials.NewTLS(config)
}

// A client gets the names that the rules for its certificate give it, and a denial for others, which do not reach the
// control plane.
func TestAccess(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	access, err := controlplane.ParseAccess([]byte(`[
		{"san": "spiffe://mesh/shop/{service}", "names": ["shop."]},
		{"san": "spiffe://mesh/shop/teller", "names": ["bank."]}]`))
	xdstest.NoError(t, err)
	r := newRig(t, func(o *relay.Options) { o.Access = access }, "delta")
	r.up.Set(t, xdsmsg.EDSCluster("shop.c", ""), xdsmsg.EDSCluster("bank.c", ""))
	secure := r.serve(r.Relay, grpc.Creds(credentials.NewTLS(ca.ServerConfig())))
	for name, test := range map[string]struct {
		stream *deltaStream
		may    map[string]bool
	}{
		"by certificate": {streamTo(t, r, secure, identified(t, ca, "spiffe://mesh/shop/frontend")), map[string]bool{"shop.c": true, "bank.c": false}},
		"by two rules":   {streamTo(t, r, secure, identified(t, ca, "spiffe://mesh/shop/teller")), map[string]bool{"shop.c": true, "bank.c": true}},
		"by another":     {streamTo(t, r, secure, identified(t, ca, "spiffe://mesh/other")), map[string]bool{"shop.c": false, "bank.c": false}},
		"by nothing":     {streamTo(t, r, r.addr, insecure.NewCredentials()), map[string]bool{"shop.c": false, "bank.c": false}},
	} {
		subscribe(test.stream, node(name), clusterType, "shop.c", "bank.c")
		got := map[string]bool{}
		for len(got) < 2 {
			resp := test.stream.receive()
			for _, res := range resp.GetResources() {
				got[res.GetName()] = true
			}
			for _, e := range resp.GetResourceErrors() {
				if codes.Code(e.GetErrorDetail().GetCode()) != codes.PermissionDenied || !strings.Contains(e.GetErrorDetail().GetMessage(), "--access") {
					t.Errorf("%s: got %v, want a denial", name, e)
				}
				got[e.GetResourceName().GetName()] = false
			}
		}
		for resource, may := range test.may {
			if got[resource] != may {
				t.Errorf("%s got %s: %t, want %t", name, resource, got[resource], may)
			}
		}
	}
	if got := r.up.Attempts(); got != 1 {
		t.Errorf("got %d streams upstream, want one", got)
	}
}

// The group of a client is that of the node that its certificate lets it be: one that claims to be another is refused,
// and no stream upstream begins for the claim.
func TestAccess_GroupsByVerifiedNode(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	access, err := controlplane.ParseAccess([]byte(`[
		{"san": "spiffe://mesh/sa/{service}", "names": [""], "node": {"metadata": {"service": "{service}"}}}]`))
	xdstest.NoError(t, err)
	r := newRig(t, func(o *relay.Options) { o.Access = access }, "delta")
	r.up.Set(t, xdsmsg.EDSCluster("c", ""))
	secure := r.serve(r.Relay, grpc.Creds(credentials.NewTLS(ca.ServerConfig())))
	cart := identified(t, ca, "spiffe://mesh/sa/cart")
	nodeOf := func(service string) *corepb.Node {
		return &corepb.Node{Id: "n", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"service": structpb.NewStringValue(service)}}}
	}

	bank := streamTo(t, r, secure, cart)
	subscribe(bank, nodeOf("bank"), clusterType, "c")
	if _, err := bank.Recv(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "node.metadata.service") {
		t.Errorf("a client that claims to be another: %v", err)
	}
	if n := r.up.Attempts(); n != 0 {
		t.Errorf("%d streams upstream for a claim that is refused", n)
	}
	for _, node := range []*corepb.Node{nodeOf("cart"), {Id: "m"}} {
		stream := streamTo(t, r, secure, cart)
		subscribe(stream, node, clusterType, "c")
		wantOnly(stream, "c")
	}
	if n := r.up.Attempts(); n != 1 {
		t.Errorf("%d streams upstream for one service", n)
	}
	if service := r.up.Requests()[0].Node.GetMetadata().GetFields()["service"].GetStringValue(); service != "cart" {
		t.Errorf("the node upstream is of the service %q", service)
	}
}
