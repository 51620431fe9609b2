package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/testutils"
)

// Envoy, RouteAction.prefix_rewrite and regex_rewrite: what goes over the wire is
// another method.
func TestPathRewritesEndToEnd(t *testing.T) {
	t.Parallel()
	regex := func(pattern, substitution string) func(*routepb.RouteAction) {
		return func(a *routepb.RouteAction) {
			a.RegexRewrite = &matcherpb.RegexMatchAndSubstitute{Pattern: &matcherpb.RegexMatcher{Regex: pattern}, Substitution: substitution}
		}
	}
	prefix := func(to string) func(*routepb.RouteAction) {
		return func(a *routepb.RouteAction) { a.PrefixRewrite = to }
	}
	separated := &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: "/v2.testing.TestService"}}
	for _, tc := range []struct {
		name    string
		match   *routepb.RouteMatch
		rewrite func(*routepb.RouteAction)
		called  string
	}{
		{"prefix_rewrite of a prefix", xdsmsg.Prefix("/v2."), prefix("/grpc."), "/v2.testing.TestService/EmptyCall"},
		{"prefix_rewrite of a path", xdsmsg.Path("/a/b"), prefix(emptyMethod), "/a/b"},
		{"prefix_rewrite of a path_separated_prefix", separated, prefix("/grpc.testing.TestService"), "/v2.testing.TestService/EmptyCall"},
		{"regex_rewrite", xdsmsg.Prefix("/"), regex(`^/v[0-9]+[.](.*)/(.*)$`, `/grpc.\1/\2`), "/v17.testing.TestService/EmptyCall"},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b")
			route := xdsmsg.Route(tc.match, xdsmsg.ToCluster("b"))
			tc.rewrite(route.GetRoute())
			m.serveRoutes([]*routepb.Route{route}, backend)
			cc := m.dial("xds:///" + service)
			xdstest.NoError(t, cc.Invoke(testutils.Context(t), tc.called, empty, new(testgrpc.Empty), grpc.WaitForReady(true)))
			if got := backend.Last().Method; got != emptyMethod {
				t.Errorf("the backend saw %q", got)
			}
		})
	}
	xdstest.Parallel(t, "what becomes no path fails", func(t *testing.T) {
		m := newMesh(t)
		route := toCluster("b")
		regex(`^/`, ``)(route.GetRoute())
		m.serveRoutes([]*routepb.Route{route}, testutils.StartBackend(t, "b"))
		mustFail(t, m.dial("xds:///"+service), "grpc.testing.TestService/UnaryCall", "not a path")
	})
}

// rewritingAuthority are the ways to rewrite an authority to "rewritten".
var rewritingAuthority = []struct {
	name  string
	apply func(*routepb.Route)
}{
	{"host_rewrite_literal", func(r *routepb.Route) {
		r.GetRoute().HostRewriteSpecifier = &routepb.RouteAction_HostRewriteLiteral{HostRewriteLiteral: "rewritten"}
	}},
	{"host_rewrite_header", func(r *routepb.Route) {
		r.GetRoute().HostRewriteSpecifier = &routepb.RouteAction_HostRewriteHeader{HostRewriteHeader: "Host-To"}
	}},
	{"auto_host_rewrite", func(r *routepb.Route) {
		r.GetRoute().HostRewriteSpecifier = &routepb.RouteAction_AutoHostRewrite{AutoHostRewrite: wrapperspb.Bool(true)}
	}},
	{"host_rewrite_literal of a weighted cluster", func(r *routepb.Route) {
		r.Action = xdsmsg.WeightedRoute("", xdsmsg.Weighted{Cluster: "b", Weight: 1}).Action
		r.GetRoute().GetWeightedClusters().GetClusters()[0].HostRewriteSpecifier = &routepb.WeightedCluster_ClusterWeight_HostRewriteLiteral{
			HostRewriteLiteral: "rewritten",
		}
	}},
}

// serveRewritten configures the service with a backend whose hostname is
// "rewritten", behind a route.
func (m *mesh) serveRewritten(route *routepb.Route, backend *testutils.Backend) {
	m.t.Helper()
	m.serveRewrittenAs(service, route, backend)
}

func (m *mesh) serveRewrittenAs(service string, route *routepb.Route, backend *testutils.Backend) {
	m.t.Helper()
	endpoints := xdsmsg.SimpleEndpoints("b", backend.Addr())
	endpoints.GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().Hostname = "rewritten"
	m.set(append(chain(service, route), xdsmsg.EDSCluster("b", ""), endpoints)...)
}

// gRFC A81, and Envoy's other ways to rewrite the authority: only if the server is a
// trusted_xds_server, and never if the application has chosen one.
func TestAuthorityRewriteEndToEnd(t *testing.T) {
	t.Parallel()
	for _, rewrite := range rewritingAuthority {
		for want, features := range map[string][]string{service: nil, "rewritten": {"trusted_xds_server"}} {
			xdstest.Parallel(t, rewrite.name+" to "+want, func(t *testing.T) {
				m, backend := newMesh(t, features...), testutils.StartBackend(t, "b")
				route := toCluster("b")
				rewrite.apply(route)
				m.serveRewritten(route, backend)
				cc := m.dial("xds:///" + service)
				eachKind(t, func(t *testing.T, k kind) {
					ctx := metadata.AppendToOutgoingContext(testutils.Context(t), "host-to", "rewritten")
					xdstest.NoError(t, callFor(ctx, cc, k).err)
					if got := backend.Last().Authority; got != want {
						t.Errorf("authority %q, want %q", got, want)
					}
					if r := callFor(ctx, cc, k, grpc.CallAuthority("mine")); r.err != nil || backend.Last().Authority != "mine" {
						t.Errorf("grpc.CallAuthority: %v, authority %q", r.err, backend.Last().Authority)
					}
				})
			})
		}
	}
}

// certificateFor returns credentials of a server with a certificate for the names,
// and of clients that trust it.
func certificateFor(t *testing.T, names ...string) (server, client credentials.TransportCredentials) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	xdstest.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:        true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	xdstest.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	xdstest.NoError(t, err)
	trusted := x509.NewCertPool()
	trusted.AddCert(cert)
	pair := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return credentials.NewServerTLSFromCert(&pair), credentials.NewClientTLSFromCert(trusted, "")
}

// gRFC A81, "xds_cluster_impl LB Policy Changes": the authority is subject to the
// check of the server's certificate, however it came about. An RPC with one that is
// not in the certificate fails and does not reach the backend.
func TestAuthorityRewriteDoesNotGetAroundTLS(t *testing.T) {
	t.Parallel()
	for _, rewrite := range rewritingAuthority {
		for name, names := range map[string][]string{"in the certificate": {service, "rewritten"}, "not in it": {service}} {
			xdstest.Parallel(t, rewrite.name+", "+name, func(t *testing.T) {
				server, client := certificateFor(t, names...)
				m, backend := newMesh(t, "trusted_xds_server"), testutils.StartBackend(t, "b", grpc.Creds(server))
				route := toCluster("b")
				rewrite.apply(route)
				m.serveRewritten(route, backend)
				cc := m.dial("xds:///"+service, grpc.WithTransportCredentials(client))
				eachKind(t, func(t *testing.T, k kind) {
					before := backend.Count()
					r := callFor(metadata.AppendToOutgoingContext(testutils.Context(t), "host-to", "rewritten"), cc, k)
					if len(names) == 2 {
						if r.err != nil || backend.Last().Authority != "rewritten" {
							t.Errorf("authority %q: %v", backend.Last().Authority, r.err)
						}
						return
					}
					checkStatus(t, r.err, codes.Unavailable, "rewritten")
					if backend.Count() != before {
						t.Error("the RPC reached the backend")
					}
				})
			})
		}
	}
}

// With auto_host_rewrite the authority is the hostname of the endpoint that was picked, whichever that is (gRFC A81).
func TestEachEndpointHasItsAuthority(t *testing.T) {
	t.Parallel()
	m, all := newMesh(t), backends(t, "a", "b", "nameless")
	route := toCluster("c")
	route.GetRoute().HostRewriteSpecifier = &routepb.RouteAction_AutoHostRewrite{AutoHostRewrite: wrapperspb.Bool(true)}
	endpoints := draining("c", all)
	for i, name := range []string{"a.example", "b.example"} {
		endpoints.Endpoints[0].LbEndpoints[i].GetEndpoint().Hostname = name
	}
	m.set(append(chain(service, route), xdsmsg.EDSCluster("c", ""), endpoints)...)
	for _, test := range []struct {
		name     string
		features []string
		opts     []grpc.CallOption
		want     map[string]string
	}{
		{"a server that is not trusted", nil, nil, map[string]string{"a": service, "b": service, "nameless": service}},
		{"a trusted one", []string{"trusted_xds_server"}, nil, map[string]string{"a": "a.example", "b": "b.example", "nameless": service}},
		{"grpc.CallAuthority", []string{"trusted_xds_server"}, []grpc.CallOption{grpc.CallAuthority("mine")}, map[string]string{"a": "mine", "b": "mine", "nameless": "mine"}},
	} {
		b, err := resolver.NewBuilder(m.Bootstrap(t.Name()+test.name, testutils.ServerFeatures(test.features...)))
		xdstest.NoError(t, err)
		cc := dial(t, "xds:///"+service, grpc.WithResolvers(b))
		for _, k := range kinds {
			for got := map[string]string{}; len(got) < len(all); {
				r := callFor(testutils.Context(t), cc, k, test.opts...)
				xdstest.NoError(t, r.err)
				for _, b := range all {
					if id := b.ID(); id == backendID(r.header) {
						if got[id] = b.Last().Authority; got[id] != test.want[id] {
							t.Errorf("%s: backend %s sees authority %q of a %s RPC, want %q", test.name, id, got[id], k, test.want[id])
						}
					}
				}
			}
		}
	}
}

// The hostname of a LOGICAL_DNS cluster's endpoint is the name with its port, whichever of its
// addresses answers. In STRICT_DNS clusters, which Envoy has and the gRFC does not, it is the name,
// unless the endpoint has a hostname of its own. (gRFC A81, "xDS Resource Validation".)
func TestAddressesInDNSHaveTheAuthorityOfTheirName(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		kind     clusterpb.Cluster_DiscoveryType
		hostname string
		want     func(name, target string) string
	}{
		{"LOGICAL_DNS", logicalDNS, "", func(_, target string) string { return target }},
		{"LOGICAL_DNS beside a hostname", logicalDNS, "own.example", func(_, target string) string { return target }},
		{"STRICT_DNS", strictDNS, "", func(name, _ string) string { return name }},
		{"STRICT_DNS with a hostname", strictDNS, "own.example", func(string, string) string { return "own.example" }},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			m, backend := newMesh(t, "trusted_xds_server"), testutils.StartBackend(t, "b")
			name, target := inZone(t, backend)
			zone.SetA(name, "127.0.0.9", "127.0.0.1") // no server listens at the first
			route := toCluster("c")
			route.GetRoute().HostRewriteSpecifier = &routepb.RouteAction_AutoHostRewrite{AutoHostRewrite: wrapperspb.Bool(true)}
			cluster := xdsmsg.InlineCluster("c", test.kind, xdsmsg.In("z", target))
			cluster.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().Hostname = test.hostname
			m.set(append(chain(service, route), cluster)...)
			cc := m.dial("xds:///" + service)
			eachKind(t, func(t *testing.T, k kind) {
				mustReach(t, cc, k, backend)
				if got, want := backend.Last().Authority, test.want(name, target); got != want {
					t.Errorf("authority %q, want %q", got, want)
				}
			})
		})
	}
}
