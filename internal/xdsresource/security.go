//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"maps"
	"slices"
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxypb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/http_11_proxy/v3"
	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/peercert"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// Security says how the connections to the endpoints of a Cluster are secured by TLS
// (Cluster.transport_socket with an UpstreamTlsContext; gRFC A29). Channels whose credentials
// do not leave security to the control plane ignore it.
type Security struct {
	// Identity provides the client's certificate. nil: the client has none, so that this is
	// TLS and not mTLS.
	Identity *CertificateInstance
	// Roots provides what the server's certificate is verified against. nil: the roots of the
	// system (gRFC A82).
	Roots *CertificateInstance
	// SANs are matched against the SANs of the server's certificate. One has to match, unless
	// there are none.
	SANs []peercert.Matcher
	// MaxDepth, unless nil, bounds the number of CA certificates in the server's chain.
	MaxDepth *uint32
	// SNI is the server name to send, unless AutoHostSNI replaces it. Empty: none (gRFC A101).
	SNI string
	// AutoHostSNI sends the host name of an endpoint that has one.
	AutoHostSNI bool
	// AutoSNISANValidation requires the certificate to be for the server name that was sent, if
	// one was, instead of SANs.
	AutoSNISANValidation bool

	encoded string
}

// CertificateInstance is what a certificate provider instance of the bootstrap is asked for.
type CertificateInstance struct {
	// Instance names the entry of certificate_providers in the bootstrap.
	Instance string
	// Certificate is for the provider to choose by, and may be empty.
	Certificate string
	// Provider is the entry. It is nil in a Cluster that was decoded without a bootstrap.
	Provider *bootstrap.CertificateProvider
}

// SecurityKey is equal for Securities of the same encoding and with the same certificate
// providers, and zero for none.
type SecurityKey struct {
	encoded         string
	identity, roots *bootstrap.CertificateProvider
}

// Key returns the key of a Security, which may be nil.
func (s *Security) Key() SecurityKey {
	if s == nil {
		return SecurityKey{}
	}
	key := SecurityKey{encoded: s.encoded}
	if s.Identity != nil {
		key.identity = s.Identity.Provider
	}
	if s.Roots != nil {
		key.roots = s.Roots.Provider
	}
	return key
}

// SatisfiedBy reports whether all connections made as before asked are as s asks. If not, s is stricter, or
// differs in a way that cannot be compared. Either may be nil.
func (s *Security) SatisfiedBy(before *Security) bool {
	switch {
	case s == nil || s == before:
		return true
	case before == nil:
		return false
	}
	return s.Identity.equal(before.Identity) && s.Roots.equal(before.Roots) &&
		(s.MaxDepth == nil || before.MaxDepth != nil && *before.MaxDepth <= *s.MaxDepth) &&
		s.namesSatisfiedBy(before)
}

// namesSatisfiedBy is SatisfiedBy for the names in the server's certificate.
func (s *Security) namesSatisfiedBy(before *Security) bool {
	switch {
	case s.AutoSNISANValidation:
		return before.AutoSNISANValidation && s.SNI == before.SNI && s.AutoHostSNI == before.AutoHostSNI &&
			slices.EqualFunc(s.SANs, before.SANs, peercert.Matcher.Equal)
	case len(s.SANs) == 0:
		return true
	case before.AutoSNISANValidation || len(before.SANs) == 0:
		return false
	}
	for _, m := range before.SANs {
		if !slices.ContainsFunc(s.SANs, m.Equal) {
			return false
		}
	}
	return true
}

// equal compares what two instances provide. Either may be nil.
func (c *CertificateInstance) equal(o *CertificateInstance) bool {
	return c == o || c != nil && o != nil && *c == *o
}

// The type of the one transport socket that secures connections, that of the one that makes
// them through proxies (gRFC A86), and that of the one that is plaintext, which also goes by
// its name alone.
const (
	proxyTypeURL  = "type.googleapis.com/envoy.extensions.transport_sockets.http_11_proxy.v3.Http11ProxyUpstreamTransport"
	tlsTypeURL    = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
	rawBufferType = "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"
	rawBufferName = "envoy.transport_sockets.raw_buffer"
)

func isPlaintext(s *corepb.TransportSocket) bool {
	if s.GetTypedConfig() == nil {
		return s.GetName() == rawBufferName
	}
	return typeurl.Name(s.GetTypedConfig().GetTypeUrl()) == rawBufferType
}

func isHTTPConnect(s *corepb.TransportSocket) bool {
	return s.GetTypedConfig().GetTypeUrl() == proxyTypeURL
}

// transportSocket returns no Security if the Cluster asks for none, and whether its connections
// go through proxies. A Cluster is valid or not whatever the credentials of the channels that
// use it (gRFC A29).
func (d clusterDecoder) transportSocket(pb *clusterpb.Cluster) (security *Security, httpConnect bool) {
	for i, match := range pb.GetTransportSocketMatches() {
		if !isPlaintext(match.GetTransportSocket()) {
			d.fault(faults.Item("transport_socket_matches", i),
				"is not supported: all endpoints of a Cluster have the same security, that of transport_socket")
		}
	}
	at, s := faults.Field("transport_socket"), pb.GetTransportSocket()
	if httpConnect = isHTTPConnect(s); httpConnect {
		wrapper := new(proxypb.Http11ProxyUpstreamTransport)
		at = at.Field("typed_config")
		d.unmarshal(at, s.GetTypedConfig(), proxyTypeURL, wrapper)
		at, s = at.Field("transport_socket"), wrapper.GetTransportSocket()
	}
	// Inside the wrapper plaintext is no transport socket at all (gRFC A86, "Proposal").
	if s != nil && (httpConnect || !isPlaintext(s)) {
		security = d.transportSecurity(at, s)
	}
	return security, httpConnect
}

// transportSecurity decodes a transport socket that secures connections.
func (d clusterDecoder) transportSecurity(at *faults.Path, socket *corepb.TransportSocket) *Security {
	at = at.Field("typed_config")
	pb := new(tlspb.UpstreamTlsContext)
	if !d.unmarshal(at, socket.GetTypedConfig(), tlsTypeURL, pb) {
		return nil
	}
	s := &Security{
		SNI: pb.GetSni(), AutoHostSNI: pb.GetAutoHostSni(), AutoSNISANValidation: pb.GetAutoSniSanValidation(),
		encoded: string(socket.GetTypedConfig().GetValue()),
	}
	if n := len(s.SNI); n > maxSNI {
		d.fault(at.Field("sni"), "must have at most %d characters, has %d", maxSNI, n)
	}
	d.common(at.Field("common_tls_context"), pb.GetCommonTlsContext(), s)
	return s
}

// maxSNI is Envoy's limit (gRFC A101, "Validation").
const maxSNI = 255

// common decodes a CommonTlsContext, which may be nil.
func (d clusterDecoder) common(at *faults.Path, pb *tlspb.CommonTlsContext, s *Security) {
	d.refuse(at, "tls_params", pb.GetTlsParams() != nil)
	d.refuse(at, "custom_handshaker", pb.GetCustomHandshaker() != nil)
	d.identity(at, pb, s)
	var context *tlspb.CertificateValidationContext
	var instance *tlspb.CommonTlsContext_CertificateProviderInstance
	in, instanceAt := at, at.Field("validation_context_certificate_provider_instance")
	switch t := pb.GetValidationContextType().(type) {
	case *tlspb.CommonTlsContext_ValidationContext:
		in, context = at.Field("validation_context"), t.ValidationContext
	case *tlspb.CommonTlsContext_CombinedValidationContext:
		combined := at.Field("combined_validation_context")
		in, context = combined.Field("default_validation_context"), t.CombinedValidationContext.GetDefaultValidationContext()
		instance = t.CombinedValidationContext.GetValidationContextCertificateProviderInstance()
		instanceAt = combined.Field("validation_context_certificate_provider_instance")
	case *tlspb.CommonTlsContext_ValidationContextCertificateProviderInstance:
		instance = t.ValidationContextCertificateProviderInstance
	default:
		d.fault(at, "validation_context_type must be validation_context or combined_validation_context, is %s",
			whichOneof(pb, "validation_context_type"))
		return
	}
	d.validationContext(in, context, s)
	switch {
	case context.GetCaCertificateProviderInstance() != nil:
		ca := context.GetCaCertificateProviderInstance()
		s.Roots = d.instance(in.Field("ca_certificate_provider_instance"), ca.GetInstanceName(), ca.GetCertificateName())
	case instance != nil:
		s.Roots = d.instance(instanceAt, instance.GetInstanceName(), instance.GetCertificateName())
	case context.GetSystemRootCerts() == nil:
		d.fault(in.Field("ca_certificate_provider_instance"), "must be set, unless system_root_certs is")
	}
}

// identity decodes where the client's certificate comes from. Without tls_certificate_provider_instance any
// other kind of certificate is an error, also beside the deprecated instance (gRFC A29, "CDS for Client Side Security").
func (d clusterDecoder) identity(at *faults.Path, pb *tlspb.CommonTlsContext, s *Security) {
	if i := pb.GetTlsCertificateProviderInstance(); i != nil {
		s.Identity = d.instance(at.Field("tls_certificate_provider_instance"), i.GetInstanceName(), i.GetCertificateName())
		return
	}
	const instead = "is not supported; use tls_certificate_provider_instance"
	if len(pb.GetTlsCertificates()) > 0 {
		d.fault(at.Field("tls_certificates"), instead)
	}
	if len(pb.GetTlsCertificateSdsSecretConfigs()) > 0 {
		d.fault(at.Field("tls_certificate_sds_secret_configs"), instead)
	}
	if i := pb.GetTlsCertificateCertificateProviderInstance(); i != nil {
		s.Identity = d.instance(at.Field("tls_certificate_certificate_provider_instance"), i.GetInstanceName(), i.GetCertificateName())
	} else if pb.GetTlsCertificateCertificateProvider() != nil {
		d.fault(at.Field("tls_certificate_certificate_provider"), instead)
	}
}

// validationContext decodes what a CertificateValidationContext, which may be nil, says but for
// the roots.
func (d clusterDecoder) validationContext(at *faults.Path, pb *tlspb.CertificateValidationContext, s *Security) {
	d.refuse(at, "verify_certificate_spki", len(pb.GetVerifyCertificateSpki()) > 0)
	d.refuse(at, "verify_certificate_hash", len(pb.GetVerifyCertificateHash()) > 0)
	d.refuse(at, "require_signed_certificate_timestamp", pb.GetRequireSignedCertificateTimestamp().GetValue())
	d.refuse(at, "crl", pb.GetCrl() != nil)
	d.refuse(at, "custom_validator_config", pb.GetCustomValidatorConfig() != nil)
	if depth := pb.GetMaxVerifyDepth(); depth != nil {
		s.MaxDepth = &depth.Value
	}
	d.regexCost = matching.MaxRegexTotal - maxSANCost
	for i, m := range pb.GetMatchTypedSubjectAltNames() {
		at := at.Item("match_typed_subject_alt_names", i)
		typ, ok := sanTypes[m.GetSanType()]
		if !ok {
			d.fault(at.Field("san_type"), "must be EMAIL, DNS, URI or IP_ADDRESS, is %v", m.GetSanType())
		}
		s.SANs = append(s.SANs, peercert.Matcher{Type: typ, Value: d.stringMatcher(at.Field("matcher"), m.GetMatcher())})
	}
	if s.SANs != nil {
		return // The deprecated field is for clients that do not know the other one.
	}
	for i, m := range pb.GetMatchSubjectAltNames() {
		s.SANs = append(s.SANs, peercert.Matcher{Value: d.stringMatcher(at.Item("match_subject_alt_names", i), m)})
	}
}

// maxSANCost bounds the cost of all regular expressions of one Cluster, of which there may be many.
const maxSANCost = 20_000

var sanTypes = map[tlspb.SubjectAltNameMatcher_SanType]peercert.SANType{
	tlspb.SubjectAltNameMatcher_EMAIL:      peercert.Email,
	tlspb.SubjectAltNameMatcher_DNS:        peercert.DNS,
	tlspb.SubjectAltNameMatcher_URI:        peercert.URI,
	tlspb.SubjectAltNameMatcher_IP_ADDRESS: peercert.IP,
}

// refuse faults a field that has been set and that this client cannot obey: connections would be
// less secure than the Cluster asks for.
func (d clusterDecoder) refuse(at *faults.Path, field string, set bool) {
	if set {
		d.fault(at.Field(field), "is not supported, and connections would be less secure without it")
	}
}

// instance looks up a certificate provider instance.
func (d clusterDecoder) instance(at *faults.Path, name, certificate string) *CertificateInstance {
	at = at.Field("instance_name")
	c := &CertificateInstance{Instance: name, Certificate: certificate}
	if name == "" {
		d.fault(at, "must not be empty")
	} else if d.Bootstrap != nil {
		switch c.Provider = d.Bootstrap.CertificateProviders[name]; {
		case c.Provider == nil:
			d.lack(at, "add it to certificate_providers, which has "+d.instances(),
				"the bootstrap lacks the certificate provider instance %s, which the Cluster asks for", faults.Quote(name))
		case c.Provider.Buildable == nil:
			d.lack(at, "import the package that registers it",
				"%s has the plugin_name %s in certificate_providers of the bootstrap, and this program has no such plugin",
				faults.Quote(name), faults.Quote(c.Provider.PluginName))
		}
	}
	return c
}

// instances lists the certificate provider instances of the bootstrap, for errors.
func (d clusterDecoder) instances() string {
	names := slices.Sorted(maps.Keys(d.Bootstrap.CertificateProviders))
	if len(names) == 0 {
		return "none"
	}
	return faults.Quote(strings.Join(names, ", "))
}
