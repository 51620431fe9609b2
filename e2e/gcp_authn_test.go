package e2e_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	gcppb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/gcp_authn/v3"
	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// metadataServer starts a stand-in for Google's metadata server for the rest of the test, whose tokens are made of the audience. It
// returns how many tokens it was asked for.
func metadataServer(t *testing.T) *atomic.Int64 {
	t.Helper()
	asked := new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		audience := r.URL.Query().Get("audience")
		if audience == "refused" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		claims := fmt.Sprintf(`{"exp": %d}`, time.Now().Add(time.Hour).Unix())
		fmt.Fprint(w, audience, ".", base64.RawURLEncoding.EncodeToString([]byte(claims)), ".x")
	}))
	t.Cleanup(server.Close)
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(server.URL, "http://"))
	return asked
}

// withAudience is the resources of a cluster with an audience for the filter "gcp".
func withAudience(audience string, resources []proto.Message) []proto.Message {
	for _, r := range resources {
		if c, ok := r.(*clusterpb.Cluster); ok {
			c.Metadata = &corepb.Metadata{TypedFilterMetadata: map[string]*anypb.Any{"gcp": xdsmsg.Any(&gcppb.Audience{Url: audience})}}
		}
	}
	return resources
}

// overTLS asks for TLS by the provider "default".
var overTLS = with(new(tlspb.UpstreamTlsContext), `common_tls_context { validation_context { ca_certificate_provider_instance { instance_name: "default" } } }`)

// serveGCP routes to clusters behind the filter "gcp".
func (m *secureMesh) serveGCP(clusters ...xdsmsg.Weighted) {
	m.set(xdsmsg.DefaultListener(service, service, xdsmsg.Filter("gcp", new(gcppb.GcpAuthnFilterConfig))),
		xdsmsg.RouteConfig(service, service, xdsmsg.WeightedRoute("", clusters...)))
}

// wanting starts a backend that refuses RPCs whose token is not for the audience, "" for RPCs without one.
func (m *secureMesh) wanting(id, audience string) *testutils.Backend {
	b := secureBackend(m.t.(*testing.T), id, m.ca, false, forNames("service"))
	b.SetBehaviour(func(_ context.Context, rpc testutils.RPC) error {
		got := strings.Join(rpc.Metadata["authorization"], ", ")
		if token, _, _ := strings.Cut(strings.TrimPrefix(got, "Bearer "), "."); token != audience {
			return status.Errorf(codes.Internal, "%s got %q", id, got)
		}
		return nil
	})
	return b
}

// gRFC A83, "Filter Behavior": the token is for the cluster that an RPC goes to, also while weights move and clusters are replaced; an RPC to
// a cluster without an audience has none.
func TestTokensAreForTheClusterOfTheRPC(t *testing.T) {
	asked := metadataServer(t)
	overLinksInTurn(t, func(t *testing.T) {
		before := asked.Load()
		m := newSecureMesh(t)
		a, b, c, none := m.wanting("a", "for-a"), m.wanting("b", "for-b"), m.wanting("c", "for-c"), m.wanting("none", "")
		m.set(withAudience("for-a", asking("a", overTLS, a)), withAudience("for-b", asking("b", overTLS, b)),
			withAudience("for-c", asking("c", overTLS, c)), asking("none", overTLS, none))
		m.serveGCP(xdsmsg.Weighted{Cluster: "a", Weight: 1}, xdsmsg.Weighted{Cluster: "b", Weight: 1}, xdsmsg.Weighted{Cluster: "none", Weight: 1})
		l := loadOn(t, m.dial(), a, b, none)
		l.await(t, a, b, none)
		m.serveGCP(xdsmsg.Weighted{Cluster: "b", Weight: 1}, xdsmsg.Weighted{Cluster: "c", Weight: 1})
		l.await(t, b, c)
		m.serveGCP(xdsmsg.Weighted{Cluster: "a", Weight: 1}, xdsmsg.Weighted{Cluster: "none", Weight: 1})
		l.await(t, a, none)
		l.Stop(t)
		xdstest.Equal(t, "requests for tokens", 3, asked.Load()-before)
	})
}
