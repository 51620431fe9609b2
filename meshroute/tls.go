package meshroute

import (
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// TLS says how clients secure their connections to a service (gRFC A29). Channels of gRPC obey it
// if their credentials are those of google.golang.org/grpc/credentials/xds, or what other languages
// have in its place; all others ignore it.
type TLS struct {
	// Mutual makes clients present a certificate, that of the instance Identity.
	Mutual bool
	// Identity and Roots name entries of certificate_providers in the bootstrap of the clients.
	// Without Roots servers are verified against the roots of the system (gRFC A82), which
	// requires SANs.
	Identity, Roots string
	// SANs are matched against the subject alternative names of the server's certificate: one
	// has to match, unless there are none.
	SANs []*matcherpb.StringMatcher
	// SNI is the server name that clients send, at most 255 characters (gRFC A101). It may be
	// empty.
	SNI string
}

// maxSNI is Envoy's limit (gRFC A101, "Validation").
const maxSNI = 255

// check returns the faults by the field's name in a document.
func (t *TLS) check(fault func(path, problem string, args ...any)) {
	if t == nil {
		return
	}
	if t.Mutual && t.Identity == "" {
		fault("tls.providers.identity", "clients have to present a certificate, and no certificate provider has it")
	}
	if t.Roots == "" && len(t.SANs) == 0 {
		fault("tls.subjectAltNames", "any site with a public certificate would be accepted: the roots of the system require SANs")
	}
	if n := len(t.SNI); n > maxSNI {
		fault("tls.sni", "the server name has %d characters, more than %d", n, maxSNI)
	}
}

// socket returns the transport socket of the service's Clusters, nil for none.
func (t *TLS) socket() (*corepb.TransportSocket, error) {
	if t == nil {
		return nil, nil
	}
	//lint:ignore SA1019 gRPC reads no other field (gRFC A29)
	validation := &tlspb.CertificateValidationContext{MatchSubjectAltNames: t.SANs}
	if t.Roots == "" {
		validation.SystemRootCerts = &tlspb.CertificateValidationContext_SystemRootCerts{}
	} else {
		validation.CaCertificateProviderInstance = &tlspb.CertificateProviderPluginInstance{InstanceName: t.Roots}
	}
	common := &tlspb.CommonTlsContext{ValidationContextType: &tlspb.CommonTlsContext_ValidationContext{ValidationContext: validation}}
	if t.Mutual {
		common.TlsCertificateProviderInstance = &tlspb.CertificateProviderPluginInstance{InstanceName: t.Identity}
	}
	return transportSocket(&tlspb.UpstreamTlsContext{CommonTlsContext: common, Sni: t.SNI})
}

func transportSocket(context proto.Message) (*corepb.TransportSocket, error) {
	packed := new(anypb.Any)
	if err := anypb.MarshalFrom(packed, context, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, err
	}
	return &corepb.TransportSocket{
		Name: "envoy.transport_sockets.tls", ConfigType: &corepb.TransportSocket_TypedConfig{TypedConfig: packed},
	}, nil
}
