package xdsresource

import (
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	proxypb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/http_11_proxy/v3"
	rawpb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func proxied(inner *corepb.TransportSocket) *clusterpb.Cluster {
	return edsCluster(func(c *clusterpb.Cluster) { c.TransportSocket = xdsmsg.ProxySocket(inner) })
}

// A86-xds-http-connect.md, "Proposal": Http11ProxyUpstreamTransport is "a wrapper around whatever
// transport socket is actually used".
func TestHTTPConnect(t *testing.T) {
	t.Parallel()
	aggregate := xdsmsg.AggregateCluster("blue", "under")
	aggregate.TransportSocket = xdsmsg.ProxySocket(nil)
	for _, tc := range []struct {
		name             string
		resource         *clusterpb.Cluster
		connects, secure bool
	}{
		{"no transport socket", edsCluster(), false, false},
		{"TLS without a proxy", secured(t, mutual()), false, true},
		{"nothing inside", proxied(nil), true, false},
		{"plaintext inside", proxied(socket(t, "mine", new(rawpb.RawBuffer))), true, false},
		{"plaintext inside, by name", proxied(&corepb.TransportSocket{Name: rawBufferName}), true, false},
		{"TLS inside", proxied(socket(t, "", mutual())), true, true},
		{"an aggregate, which has no connections", aggregate, false, false},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			_, value, err := ClusterType.Decode(xdsmsg.Any(tc.resource), withProviders())
			xdstest.NoError(t, err)
			c := value.(*Cluster)
			if c.HTTPConnect != tc.connects || (c.Security != nil) != tc.secure {
				t.Errorf("HTTPConnect %t and Security %v, want %t and %t", c.HTTPConnect, c.Security, tc.connects, tc.secure)
			}
			if _, direct, _ := ClusterType.Decode(xdsmsg.Any(secured(t, mutual())), withProviders()); tc.secure &&
				c.Security.encoded != direct.(*Cluster).Security.encoded {
				t.Error("TLS inside is not as TLS without a proxy")
			}
		})
	}
}

// A86-xds-http-connect.md, "Proposal": "we will retain the original behavior for the underlying
// transport socket", so that what gRFC A29 has NACKed is NACKed inside as well.
func TestHTTPConnectFaults(t *testing.T) {
	t.Parallel()
	const inner = tlsPath + ".transport_socket.typed_config"
	checkAllFaults(t, ClusterType, []faultTest{
		{"TLS without roots", proxied(socket(t, "", onValidation(func(v *tlspb.CertificateValidationContext) {
			v.CaCertificateProviderInstance = nil
		}))), []fault{{inner + ".common_tls_context.validation_context.ca_certificate_provider_instance", "must be set, unless system_root_certs is"}}},
		{"an unknown transport socket", proxied(socket(t, "", new(tlspb.DownstreamTlsContext))),
			[]fault{{inner, `has type "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext", want "` + tlsTypeURL + `"`}}},
		{"a wrapper in a wrapper", proxied(xdsmsg.ProxySocket(nil)),
			[]fault{{inner, `has type "` + proxyTypeURL + `", want "` + tlsTypeURL + `"`}}},
		{"by transport_socket_matches", edsCluster(func(c *clusterpb.Cluster) {
			c.TransportSocketMatches = []*clusterpb.Cluster_TransportSocketMatch{{TransportSocket: xdsmsg.ProxySocket(nil)}}
		}), []fault{{"transport_socket_matches[0]", "is not supported: all endpoints of a Cluster have the same security, that of transport_socket"}}},
	})
	malformed := proxied(nil)
	malformed.GetTransportSocket().GetTypedConfig().Value = []byte{0xff}
	if got := decodeFaults(t, ClusterType, malformed); len(got) != 1 || got[0].Path != tlsPath {
		t.Errorf("faults %v, want one at %s", got, tlsPath)
	}
}

func entry(key string, m proto.Message) *corepb.Metadata {
	return &corepb.Metadata{TypedFilterMetadata: map[string]*anypb.Any{key: xdsmsg.Any(m)}}
}

// via is a locality of an endpoint, both with metadata.
func via(ofLocality, endpoint *corepb.Metadata) *endpointpb.LocalityLbEndpoints {
	e := host("10.0.0.1")
	e.Metadata = endpoint
	l := locality("z", 0, 1, e)
	l.Metadata = ofLocality
	return l
}

// A86-xds-http-connect.md, "Proposal": "The transport socket will look for the key first in the
// endpoint-level metadata. If not found there, it will look in the locality-level metadata."
func TestProxyOfAnEndpoint(t *testing.T) {
	t.Parallel()
	one, other := xdsmsg.Proxy("10.9.9.1:3128"), xdsmsg.Proxy("[2001:db8::1]:3128")
	notAnAddress := entry(proxyKey, wrapperspb.String("10.9.9.1:3128"))
	untyped := &corepb.Metadata{FilterMetadata: map[string]*structpb.Struct{proxyKey: {}}}
	for _, tc := range []struct {
		name               string
		locality, endpoint *corepb.Metadata
		want               string
	}{
		{"neither", nil, nil, ""},
		{"of the endpoint", nil, one, "10.9.9.1:3128"},
		{"of the locality", one, nil, "10.9.9.1:3128"},
		{"the endpoint's first", one, other, "[2001:db8::1]:3128"},
		{"another key", entry("other", xdsmsg.Address("10.9.9.1:3128")), nil, ""},
		// "If that key is not present, or if the key is present but the value has a different type,
		// the entry will be ignored."
		{"another type", nil, notAnAddress, ""},
		{"another type at the endpoint, and the locality's", one, notAnAddress, "10.9.9.1:3128"},
		{"untyped", one, untyped, "10.9.9.1:3128"},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			l := via(tc.locality, tc.endpoint)
			xdstest.Equal(t, "EDS", tc.want, mustDecode[Endpoints](t, EndpointsType, assignment(l)).Localities[0].Endpoints[0].Proxy)
			for _, kind := range []clusterpb.Cluster_DiscoveryType{clusterpb.Cluster_STATIC, clusterpb.Cluster_STRICT_DNS, clusterpb.Cluster_LOGICAL_DNS} {
				c := xdsmsg.InlineCluster("c", kind)
				c.LoadAssignment.Endpoints = []*endpointpb.LocalityLbEndpoints{l}
				xdstest.Equal(t, kind.String(), tc.want, mustDecode[Cluster](t, ClusterType, c).Inline.Localities[0].Endpoints[0].Proxy)
			}
		})
	}
}

// A86-xds-http-connect.md, "Proposal": "the socket_address field must be set. Inside of that field,
// the address field must be set to an IPv4 or IPv6 address, and the port_value field must be set."
// A83-xds-gcp-authn-filter.md, "xDS Cluster Metadata": what is of a known type and is not valid is
// NACKed under any key.
func TestProxyFaults(t *testing.T) {
	t.Parallel()
	const at = "endpoints[0].metadata.typed_filter_metadata"
	proxyAt := func(m proto.Message) *endpointpb.ClusterLoadAssignment {
		return assignment(via(entry(proxyKey, m), nil))
	}
	key := "[\"" + proxyKey + "\"]"
	malformed := xdsmsg.Proxy("10.9.9.1:1")
	malformed.TypedFilterMetadata[proxyKey].Value = []byte{0xff}
	checkAllFaults(t, EndpointsType, []faultTest{
		{"a pipe", proxyAt(&corepb.Address{Address: &corepb.Address_Pipe{Pipe: &corepb.Pipe{Path: "/x"}}}),
			[]fault{{at + key, "must be socket_address, is pipe"}}},
		{"nothing", proxyAt(&corepb.Address{}), []fault{{at + key, "must be socket_address, is not set"}}},
		{"a host name", proxyAt(tcp("proxy.example.com", 3128)),
			[]fault{{at + key + ".socket_address.address", `"proxy.example.com" is not an IP address`}}},
		{"no address", proxyAt(tcp("", 3128)), []fault{{at + key + ".socket_address.address", "must not be empty"}}},
		{"no port", proxyAt(&corepb.Address{Address: &corepb.Address_SocketAddress{SocketAddress: &corepb.SocketAddress{Address: "10.9.9.1"}}}),
			[]fault{{at + key + ".socket_address", "port_specifier must be port_value, is not set"}}},
		{"a port that is too high", proxyAt(tcp("10.9.9.1", 65536)),
			[]fault{{at + key + ".socket_address.port_value", "must be from 1 to 65535, is 65536"}}},
		{"under another key, at the endpoint", assignment(via(nil, entry("other", tcp("x", 1)))),
			[]fault{{"endpoints[0].lb_endpoints[0].metadata.typed_filter_metadata[\"other\"].socket_address.address", `"x" is not an IP address`}}},
	})
	if got := decodeFaults(t, EndpointsType, assignment(via(malformed, nil))); len(got) != 1 || got[0].Path != at+key {
		t.Errorf("faults %v, want one at %s", got, at+key)
	}
	static := xdsmsg.InlineCluster("c", clusterpb.Cluster_STATIC)
	static.LoadAssignment.Endpoints = []*endpointpb.LocalityLbEndpoints{via(nil, entry(proxyKey, tcp("x", 1)))}
	checkFaults(t, ClusterType, static, []fault{{
		"load_assignment.endpoints[0].lb_endpoints[0].metadata.typed_filter_metadata" + key + ".socket_address.address", `"x" is not an IP address`,
	}})
}

// A86-xds-http-connect.md, "Proposal": the wrapper is obeyed "regardless of whether XdsCredentials
// is used", and what is inside is not.
func TestIgnoredFieldsOfHTTPConnect(t *testing.T) {
	t.Parallel()
	checkIgnored(t, ignoredOf(t, ClusterType, proxied(nil)))
	checkIgnored(t, ignoredOf(t, ClusterType, proxied(socket(t, "", mutual()))), note{tlsPath + ".transport_socket", othersIgnore})
	withDefault := proxied(nil)
	withDefault.GetTransportSocket().ConfigType = &corepb.TransportSocket_TypedConfig{
		TypedConfig: xdsmsg.Any(&proxypb.Http11ProxyUpstreamTransport{DefaultProxyAddress: xdsmsg.Address("10.9.9.1:1")}),
	}
	checkIgnored(t, ignoredOf(t, ClusterType, withDefault), note{tlsPath + ".default_proxy_address", notActedOn})
	l := via(xdsmsg.Proxy("10.9.9.1:1"), entry("other", wrapperspb.Bool(true)))
	checkIgnored(t, ignoredOf(t, EndpointsType, assignment(l)),
		note{"endpoints[0].lb_endpoints[0].metadata.typed_filter_metadata[\"other\"]", notActedOn})
	aggregate := xdsmsg.AggregateCluster("blue", "under")
	aggregate.TransportSocket = xdsmsg.ProxySocket(nil)
	checkIgnored(t, ignoredOf(t, ClusterType, aggregate), note{"transport_socket", ofUnderlying})
}
