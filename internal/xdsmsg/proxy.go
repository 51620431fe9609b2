package xdsmsg

import (
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxypb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/http_11_proxy/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// ProxySocket is the transport socket of a Cluster whose connections go through HTTP CONNECT
// proxies (gRFC A86), around another one, which may be nil.
func ProxySocket(inner *corepb.TransportSocket) *corepb.TransportSocket {
	return &corepb.TransportSocket{
		Name: "envoy.transport_sockets.http_11_proxy",
		ConfigType: &corepb.TransportSocket_TypedConfig{
			TypedConfig: Any(&proxypb.Http11ProxyUpstreamTransport{TransportSocket: inner}),
		},
	}
}

// Proxy is the metadata of an endpoint or a locality with the address of a proxy, "host:port".
func Proxy(addr string) *corepb.Metadata {
	return &corepb.Metadata{TypedFilterMetadata: map[string]*anypb.Any{
		"envoy.http11_proxy_transport_socket.proxy_address": Any(Address(addr)),
	}}
}
