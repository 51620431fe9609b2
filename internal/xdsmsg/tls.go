package xdsmsg

import (
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
)

// UpstreamTLS is TLS with the certificate provider instances of the client's certificate, ""
// for none, and of the roots, "" for those of the system, and with exact SANs.
func UpstreamTLS(identity, roots string, sans ...string) *tlspb.UpstreamTlsContext {
	validation := new(tlspb.CertificateValidationContext)
	if roots == "" {
		validation.SystemRootCerts = new(tlspb.CertificateValidationContext_SystemRootCerts)
	} else {
		validation.CaCertificateProviderInstance = &tlspb.CertificateProviderPluginInstance{InstanceName: roots}
	}
	for _, san := range sans {
		//lint:ignore SA1019 Control planes send the field, and gRPC reads no other.
		validation.MatchSubjectAltNames = append(validation.MatchSubjectAltNames,
			&matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: san}})
	}
	common := &tlspb.CommonTlsContext{
		ValidationContextType: &tlspb.CommonTlsContext_ValidationContext{ValidationContext: validation},
	}
	if identity != "" {
		common.TlsCertificateProviderInstance = &tlspb.CertificateProviderPluginInstance{InstanceName: identity}
	}
	return &tlspb.UpstreamTlsContext{CommonTlsContext: common}
}

// TLSSocket is the transport socket of a Cluster (an UpstreamTlsContext) or of a server's
// filter chain (a DownstreamTlsContext).
func TLSSocket(context proto.Message) *corepb.TransportSocket {
	return &corepb.TransportSocket{
		Name: "envoy.transport_sockets.tls", ConfigType: &corepb.TransportSocket_TypedConfig{TypedConfig: Any(context)},
	}
}
