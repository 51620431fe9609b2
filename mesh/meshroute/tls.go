package meshroute

import (
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// TLSMode is what the two sides of a connection verify of each other.
type TLSMode int

// The modes of TLS.
const (
	// TLSMutual makes clients verify the server and present a certificate.
	TLSMutual TLSMode = iota
	// TLSSimple makes clients verify the server alone.
	TLSSimple
	// TLSOff leaves security to the credentials of channels and servers.
	TLSOff
)

// TLS is how connections to a service are secured (gRFC A29): by its clients, in its Clusters, and by
// those of its servers that are xDS servers (gRFC A36), in a Listener for each endpoint with an IP address.
// gRPC obeys it if the credentials of the channel or server are those of
// google.golang.org/grpc/credentials/xds, or what other languages have in their place; others ignore it.
type TLS struct {
	Mode TLSMode
	// Identity and Roots name entries of certificate_providers in the bootstrap of clients and
	// servers: for the own certificate, and for what that of the other side is verified against.
	// Without Roots clients verify against the roots of the system (gRFC A82), which requires
	// SANs, and there are no Listeners in mode TLSMutual.
	Identity, Roots string
	// SANs are matched against the subject alternative names of the server's certificate: one
	// has to match, unless there are none.
	SANs []*matcherpb.StringMatcher
	// SNI is the server name that clients send, at most 255 characters (gRFC A101). It may be
	// empty.
	SNI string
	// Source is the place of the fields. Zero: that of the service.
	Source Source
}

// maxSNI is Envoy's limit (gRFC A101, "Validation").
const maxSNI = 255

// isOff reports whether there is no TLS. t may be nil.
func (t *TLS) isOff() bool { return t == nil || t.Mode == TLSOff }

// check returns the errors by the field's name in a document.
func (t *TLS) check(fault func(path, problem string, args ...any)) {
	if t.isOff() {
		return
	}
	if t.Mode != TLSMutual && t.Mode != TLSSimple {
		fault("tls.mode", "%d is not a mode of TLS", t.Mode)
	}
	if t.Mode == TLSMutual && t.Identity == "" {
		fault("tls.providers.identity", "clients have to present a certificate, and no certificate provider has it")
	}
	if t.Roots == "" && len(t.SANs) == 0 {
		fault("tls.subjectAltNames", "with the roots of the system any site with a public certificate would be accepted; list the names of the servers in subjectAltNames")
	}
	if n := len(t.SNI); n > maxSNI {
		fault("tls.sni", "the server name has %d characters, more than %d", n, maxSNI)
	}
}

// client returns the configuration of the transport socket of the service's Clusters, nil for none.
func (t *TLS) client() proto.Message {
	if t.isOff() {
		return nil
	}
	//lint:ignore SA1019 gRPC reads no other field (gRFC A29)
	validation := &tlspb.CertificateValidationContext{MatchSubjectAltNames: t.SANs}
	if t.Roots == "" {
		validation.SystemRootCerts = &tlspb.CertificateValidationContext_SystemRootCerts{}
	} else {
		validation.CaCertificateProviderInstance = instance(t.Roots)
	}
	common := &tlspb.CommonTlsContext{ValidationContextType: &tlspb.CommonTlsContext_ValidationContext{ValidationContext: validation}}
	if t.Mode == TLSMutual {
		common.TlsCertificateProviderInstance = instance(t.Identity)
	}
	return &tlspb.UpstreamTlsContext{CommonTlsContext: common, Sni: t.SNI}
}

// server returns the configuration of the transport socket of the servers' Listeners, nil for none.
func (t *TLS) server() proto.Message {
	if t.isOff() {
		return nil
	}
	common := &tlspb.CommonTlsContext{TlsCertificateProviderInstance: instance(t.Identity)}
	context := &tlspb.DownstreamTlsContext{CommonTlsContext: common}
	if t.Mode == TLSMutual {
		context.RequireClientCertificate = wrapperspb.Bool(true)
		common.ValidationContextType = &tlspb.CommonTlsContext_ValidationContext{ValidationContext: &tlspb.CertificateValidationContext{
			CaCertificateProviderInstance: instance(t.Roots),
		}}
	}
	return context
}

// hasServers reports whether xDS servers can be configured: they need a certificate and, to verify those of
// clients, roots of the mesh.
func (t *TLS) hasServers() bool {
	return t != nil && (t.Mode == TLSOff || t.Identity != "" && (t.Mode == TLSSimple || t.Roots != ""))
}

func instance(name string) *tlspb.CertificateProviderPluginInstance {
	return &tlspb.CertificateProviderPluginInstance{InstanceName: name}
}

// socket returns the transport socket with a configuration, nil for none.
func (c *serviceCompiler) socket(context proto.Message) *corepb.TransportSocket {
	if context == nil {
		return nil
	}
	return &corepb.TransportSocket{
		Name: "envoy.transport_sockets.tls", ConfigType: &corepb.TransportSocket_TypedConfig{TypedConfig: c.pack(context)},
	}
}

// pack is the same for equal messages.
func pack(m proto.Message) (*anypb.Any, error) {
	packed := new(anypb.Any)
	return packed, anypb.MarshalFrom(packed, m, proto.MarshalOptions{Deterministic: true})
}
