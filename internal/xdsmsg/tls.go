package xdsmsg

import (
	"fmt"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
)

// UpstreamTLS is TLS with the certificate provider instances of the client's certificate, ""
// for none, and of the roots, "" for those of the system, and with exact SANs.
func UpstreamTLS(identity, roots string, sans ...string) *tlspb.UpstreamTlsContext {
	const instance = "certificate_provider_instance { instance_name: %q }"
	validation := "system_root_certs {}"
	if roots != "" {
		validation = fmt.Sprintf("ca_"+instance, roots)
	}
	for _, san := range sans {
		validation += fmt.Sprintf(" match_subject_alt_names { exact: %q }", san)
	}
	context := With(new(tlspb.UpstreamTlsContext), "common_tls_context { validation_context { %s } }", validation)
	if identity != "" {
		With(context, "common_tls_context { tls_"+instance+" }", identity)
	}
	return context
}

// TLSSocket is the transport socket of a Cluster (an UpstreamTlsContext) or of a server's
// filter chain (a DownstreamTlsContext).
func TLSSocket(context proto.Message) *corepb.TransportSocket {
	return &corepb.TransportSocket{
		Name: "envoy.transport_sockets.tls", ConfigType: &corepb.TransportSocket_TypedConfig{TypedConfig: Any(context)},
	}
}
