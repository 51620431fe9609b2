package xdsresource

import (
	"fmt"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// proxied is a Cluster whose connections go through proxies, with the field transport_socket inside.
func proxied(t testing.TB, inner string) *clusterpb.Cluster {
	t.Helper()
	return blue(t, proxySocket(inner))
}

func proxySocket(inner string) string {
	return `transport_socket{typed_config{[Http11ProxyUpstreamTransport]{` + inner + `}}}`
}

// A86-xds-http-connect.md, "Proposal": Http11ProxyUpstreamTransport is "a wrapper around whatever
// transport socket is actually used".
func TestHTTPConnect(t *testing.T) {
	t.Parallel()
	aggregate := withText(t, xdsmsg.AggregateCluster("blue", "under"), proxySocket(""))
	for _, tc := range []struct {
		name             string
		resource         *clusterpb.Cluster
		connects, secure bool
	}{
		{"no transport socket", blue(t, ""), false, false},
		{"TLS without a proxy", secured(t, mutual), false, true},
		{"nothing inside", proxied(t, ""), true, false},
		{"TLS inside", proxied(t, tlsSocket(mutual)), true, true},
		{"an aggregate, which has no connections", aggregate, false, false},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			value, err := ClusterType.Decode(xdsmsg.Any(tc.resource), withProviders())
			xdstest.NoError(t, err)
			c := value.(*Cluster)
			if c.HTTPConnect != tc.connects || (c.Security != nil) != tc.secure {
				t.Errorf("HTTPConnect %t and Security %v, want %t and %t", c.HTTPConnect, c.Security, tc.connects, tc.secure)
			}
			if direct, _ := ClusterType.Decode(xdsmsg.Any(secured(t, mutual)), withProviders()); tc.secure &&
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
	checkTextFaults(t, ClusterType, inner, proxied, []textCase{
		{"TLS without roots", tlsSocket(noRoots),
			"@.common_tls_context.validation_context.ca_certificate_provider_instance: must be set, unless system_root_certs is"},
		{"an unknown transport socket", `transport_socket{typed_config{[DownstreamTlsContext]{}}}`,
			`@: has type "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext", want "` + tlsTypeURL + `"`},
		// "may be either unset or may contain an UpstreamTlsContext ... any other type in this field, we will NACK".
		{"plaintext", `transport_socket{name:"mine" typed_config{[RawBuffer]{}}}`,
			`@: has type "type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer", want "` + tlsTypeURL + `"`},
		{"plaintext by name", `transport_socket{name:"` + rawBufferName + `"}`, `@: has type "", want "` + tlsTypeURL + `"`},
		{"a wrapper in a wrapper", proxySocket(""), `@: has type "` + proxyTypeURL + `", want "` + tlsTypeURL + `"`},
	})
	xdstest.Parallel(t, "by transport_socket_matches", func(t *testing.T) {
		c := blue(t, `transport_socket_matches{`+proxySocket("")+`}`)
		xdstest.Equal(t, "faults", "transport_socket_matches[0]: is not supported: all endpoints of a Cluster have the same security, "+
			"that of transport_socket", faultText(t, ClusterType, c))
	})
	malformed := proxied(t, "")
	malformed.GetTransportSocket().GetTypedConfig().Value = []byte{0xff}
	if got := decodeFaults(t, ClusterType, malformed); len(got) != 1 || got[0].Path != tlsPath {
		t.Errorf("faults %v, want one at %s", got, tlsPath)
	}
}

// via is a locality of an endpoint, with the metadata of both in prototext.
func via(t testing.TB, ofLocality, endpoint string) *endpointpb.LocalityLbEndpoints {
	t.Helper()
	l := withText(t, locality("z", 0, 1, host("10.0.0.1")), ofLocality)
	withText(t, l.LbEndpoints[0], endpoint)
	return l
}

// underKey is the field metadata with a typed message under a key.
func underKey(key, message string) string {
	return `metadata{typed_filter_metadata{key:"` + key + `" value{` + message + `}}}`
}

// address is an Address, as a message for underKey.
func address(host string, port int) string {
	return fmt.Sprintf(`[Address]{socket_address{address:%q port_value:%d}}`, host, port)
}

// A86-xds-http-connect.md, "Proposal": "The transport socket will look for the key first in the
// endpoint-level metadata. If not found there, it will look in the locality-level metadata."
func TestProxyOfAnEndpoint(t *testing.T) {
	t.Parallel()
	one, other := underKey(proxyKey, address("10.9.9.1", 3128)), underKey(proxyKey, address("2001:db8::1", 3128))
	notAnAddress := underKey(proxyKey, `[StringValue]{value:"10.9.9.1:3128"}`)
	const untyped = `metadata{filter_metadata{key:"` + proxyKey + `" value{}}}`
	for _, tc := range []struct{ name, locality, endpoint, want string }{
		{"neither", "", "", ""},
		{"of the endpoint", "", one, "10.9.9.1:3128"},
		{"of the locality", one, "", "10.9.9.1:3128"},
		{"the endpoint's first", one, other, "[2001:db8::1]:3128"},
		{"another key", underKey("other", address("10.9.9.1", 3128)), "", ""},
		// "If that key is not present, or if the key is present but the value has a different type,
		// the entry will be ignored."
		{"another type", "", notAnAddress, ""},
		{"another type at the endpoint, and the locality's", one, notAnAddress, "10.9.9.1:3128"},
		{"untyped", one, untyped, "10.9.9.1:3128"},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			l := via(t, tc.locality, tc.endpoint)
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
	const key = "[\"" + proxyKey + "\"]"
	ofLocality := func(t testing.TB, message string) *endpointpb.ClusterLoadAssignment {
		return assignment(via(t, underKey(proxyKey, message), ""))
	}
	checkTextFaults(t, EndpointsType, at+key, ofLocality, []textCase{
		{"a pipe", `[Address]{pipe{path:"/x"}}`, "@: must be socket_address, is pipe"},
		{"nothing", `[Address]{}`, "@: must be socket_address, is not set"},
		{"a host name", address("proxy.example.com", 3128), `@.socket_address.address: "proxy.example.com" is not an IP address`},
		{"no address", address("", 3128), "@.socket_address.address: must not be empty"},
		{"no port", `[Address]{socket_address{address:"10.9.9.1"}}`,
			"@.socket_address: port_specifier must be port_value, is not set"},
		{"a port that is too high", address("10.9.9.1", 65536), "@.socket_address.port_value: must be from 1 to 65535, is 65536"},
	})
	ofEndpoint := func(key string) *endpointpb.LocalityLbEndpoints { return via(t, "", underKey(key, address("x", 1))) }
	xdstest.Equal(t, "faults under another key, at the endpoint",
		`endpoints[0].lb_endpoints[0].metadata.typed_filter_metadata["other"].socket_address.address: "x" is not an IP address`,
		faultText(t, EndpointsType, assignment(ofEndpoint("other"))))
	malformed := ofLocality(t, `type_url:"`+addressTypeURL+`" value:"\xff"`)
	if got := decodeFaults(t, EndpointsType, malformed); len(got) != 1 || got[0].Path != at+key {
		t.Errorf("faults %v, want one at %s", got, at+key)
	}
	static := xdsmsg.InlineCluster("c", clusterpb.Cluster_STATIC)
	static.LoadAssignment.Endpoints = []*endpointpb.LocalityLbEndpoints{ofEndpoint(proxyKey)}
	xdstest.Equal(t, "faults of a STATIC cluster",
		"load_assignment.endpoints[0].lb_endpoints[0].metadata.typed_filter_metadata"+key+`.socket_address.address: "x" is not an IP address`,
		faultText(t, ClusterType, static))
}

// A86-xds-http-connect.md, "Proposal": the wrapper is obeyed "regardless of whether XdsCredentials
// is used". Metadata of others asks for nothing.
func TestIgnoredFieldsOfHTTPConnect(t *testing.T) {
	t.Parallel()
	checkIgnored(t, ignoredOf(t, ClusterType, proxied(t, "")))
	checkIgnored(t, ignoredOf(t, ClusterType, proxied(t, tlsSocket(mutual))))
	withDefault := proxied(t, `default_proxy_address{socket_address{address:"10.9.9.1" port_value:1}}`)
	checkIgnored(t, ignoredOf(t, ClusterType, withDefault), note{tlsPath + ".default_proxy_address", notActedOn})
	l := via(t, underKey(proxyKey, address("10.9.9.1", 1)), underKey("other", `[StringValue]{}`))
	checkIgnored(t, ignoredOf(t, EndpointsType, assignment(l)))
	aggregate := withText(t, xdsmsg.AggregateCluster("blue", "under"), proxySocket(""))
	checkIgnored(t, ignoredOf(t, ClusterType, aggregate), note{"transport_socket", ofUnderlying})
}
