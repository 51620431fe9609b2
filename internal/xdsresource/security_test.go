//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rawpb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/credentials/tls/certprovider"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/peercert"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// secured is a Cluster with an UpstreamTlsContext.
func secured(t *testing.T, pb *tlspb.UpstreamTlsContext) *clusterpb.Cluster {
	t.Helper()
	return edsCluster(func(c *clusterpb.Cluster) {
		c.TransportSocket = socket(t, "envoy.transport_sockets.tls", pb)
	})
}

func socket(t *testing.T, name string, config proto.Message) *corepb.TransportSocket {
	t.Helper()
	return &corepb.TransportSocket{Name: name, ConfigType: &corepb.TransportSocket_TypedConfig{TypedConfig: xdsmsg.Any(config)}}
}

func instance(name, certificate string) *tlspb.CertificateProviderPluginInstance {
	return &tlspb.CertificateProviderPluginInstance{InstanceName: name, CertificateName: certificate}
}

func oldInstance(name, certificate string) *tlspb.CommonTlsContext_CertificateProviderInstance {
	return &tlspb.CommonTlsContext_CertificateProviderInstance{InstanceName: name, CertificateName: certificate}
}

// mutual is a context with everything that a client needs for mTLS, edited.
func mutual(edits ...func(*tlspb.UpstreamTlsContext, *tlspb.CommonTlsContext, *tlspb.CertificateValidationContext)) *tlspb.UpstreamTlsContext {
	validation := &tlspb.CertificateValidationContext{CaCertificateProviderInstance: instance("roots", "r")}
	common := &tlspb.CommonTlsContext{
		TlsCertificateProviderInstance: instance("identity", "i"),
		ValidationContextType:          &tlspb.CommonTlsContext_ValidationContext{ValidationContext: validation},
	}
	pb := &tlspb.UpstreamTlsContext{CommonTlsContext: common}
	for _, edit := range edits {
		edit(pb, common, validation)
	}
	return pb
}

func onCommon(edit func(*tlspb.CommonTlsContext)) *tlspb.UpstreamTlsContext {
	return mutual(func(_ *tlspb.UpstreamTlsContext, c *tlspb.CommonTlsContext, _ *tlspb.CertificateValidationContext) {
		edit(c)
	})
}

func onValidation(edit func(*tlspb.CertificateValidationContext)) *tlspb.UpstreamTlsContext {
	return mutual(func(_ *tlspb.UpstreamTlsContext, _ *tlspb.CommonTlsContext, v *tlspb.CertificateValidationContext) {
		edit(v)
	})
}

func stringMatch(exact string) *matcherpb.StringMatcher {
	return &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: exact}}
}

// withProviders has the instances "identity" and "roots" in the bootstrap, and "foreign", for
// which there is no plugin.
func withProviders() xdsclient.DecodeOptions {
	buildable := new(certprovider.BuildableConfig)
	return xdsclient.DecodeOptions{Bootstrap: &bootstrap.Config{CertificateProviders: map[string]*bootstrap.CertificateProvider{
		"identity": {PluginName: "a", Buildable: buildable}, "roots": {PluginName: "b", Buildable: buildable}, "foreign": {PluginName: "c"},
	}}}
}

const tlsPath = "transport_socket.typed_config"

// gRFC A29, "CDS for Client Side Security" and "CommonTlsContext Processing"; A82, "xDS Resource
// Validation"; A101, "Proposal".
func TestSecurity(t *testing.T) {
	t.Parallel()
	identity, roots := &CertificateInstance{Instance: "identity", Certificate: "i"}, &CertificateInstance{Instance: "roots", Certificate: "r"}
	exactly := func(typ peercert.SANType, s string) peercert.Matcher {
		return peercert.Matcher{Type: typ, Value: matching.NewString(matching.StringExact, s, false)}
	}
	depth := uint32(2)
	for _, tc := range []struct {
		given string
		pb    *tlspb.UpstreamTlsContext
		want  *Security
	}{
		{"mTLS", mutual(), &Security{Identity: identity, Roots: roots}},
		{"TLS", onCommon(func(c *tlspb.CommonTlsContext) { c.TlsCertificateProviderInstance = nil }), &Security{Roots: roots}},
		{"a combined validation context", onCommon(func(c *tlspb.CommonTlsContext) {
			// Envoy requires the SDS config to be there.
			c.ValidationContextType = &tlspb.CommonTlsContext_CombinedValidationContext{
				CombinedValidationContext: &tlspb.CommonTlsContext_CombinedCertificateValidationContext{
					DefaultValidationContext:         c.GetValidationContext(),
					ValidationContextSdsSecretConfig: &tlspb.SdsSecretConfig{Name: "x"},
				},
			}
		}), &Security{Identity: identity, Roots: roots}},
		{"deprecated instances", onCommon(func(c *tlspb.CommonTlsContext) {
			c.TlsCertificateProviderInstance = nil
			c.TlsCertificateCertificateProviderInstance = oldInstance("identity", "i")
			c.ValidationContextType = &tlspb.CommonTlsContext_ValidationContextCertificateProviderInstance{
				ValidationContextCertificateProviderInstance: oldInstance("roots", "r"),
			}
		}), &Security{Identity: identity, Roots: roots}},
		{"a deprecated instance beside a default validation context", onCommon(func(c *tlspb.CommonTlsContext) {
			c.ValidationContextType = &tlspb.CommonTlsContext_CombinedValidationContext{
				CombinedValidationContext: &tlspb.CommonTlsContext_CombinedCertificateValidationContext{
					DefaultValidationContext: &tlspb.CertificateValidationContext{
						MatchSubjectAltNames: []*matcherpb.StringMatcher{stringMatch("spiffe://a/b")},
					},
					ValidationContextCertificateProviderInstance: oldInstance("roots", "r"),
				},
			}
		}), &Security{Identity: identity, Roots: roots, SANs: []peercert.Matcher{exactly(peercert.AnySAN, "spiffe://a/b")}}},
		{"an instance and a deprecated one", onCommon(func(c *tlspb.CommonTlsContext) {
			c.TlsCertificateCertificateProviderInstance = oldInstance("other", "")
		}), &Security{Identity: identity, Roots: roots}},
		{"certificates for others beside an instance", onCommon(func(c *tlspb.CommonTlsContext) {
			c.TlsCertificates = []*tlspb.TlsCertificate{{}}
			c.TlsCertificateSdsSecretConfigs = []*tlspb.SdsSecretConfig{{Name: "x"}}
		}), &Security{Identity: identity, Roots: roots}},
		{"system roots", onValidation(func(v *tlspb.CertificateValidationContext) {
			v.CaCertificateProviderInstance, v.SystemRootCerts = nil, &tlspb.CertificateValidationContext_SystemRootCerts{}
		}), &Security{Identity: identity}},
		{"system roots and an instance", onValidation(func(v *tlspb.CertificateValidationContext) {
			v.SystemRootCerts = &tlspb.CertificateValidationContext_SystemRootCerts{}
		}), &Security{Identity: identity, Roots: roots}},
		{"untyped SANs", onValidation(func(v *tlspb.CertificateValidationContext) {
			v.MatchSubjectAltNames = []*matcherpb.StringMatcher{stringMatch("a"), stringMatch("b")}
		}), &Security{Identity: identity, Roots: roots, SANs: []peercert.Matcher{exactly(peercert.AnySAN, "a"), exactly(peercert.AnySAN, "b")}}},
		{"typed SANs, which replace untyped ones", onValidation(func(v *tlspb.CertificateValidationContext) {
			v.MatchSubjectAltNames = []*matcherpb.StringMatcher{stringMatch("a")}
			for typ := range tlspb.SubjectAltNameMatcher_OTHER_NAME {
				if typ > 0 {
					v.MatchTypedSubjectAltNames = append(v.MatchTypedSubjectAltNames, &tlspb.SubjectAltNameMatcher{SanType: typ, Matcher: stringMatch("x")})
				}
			}
		}), &Security{Identity: identity, Roots: roots, SANs: []peercert.Matcher{
			exactly(peercert.Email, "x"), exactly(peercert.DNS, "x"), exactly(peercert.URI, "x"), exactly(peercert.IP, "x"),
		}}},
		{"server names", mutual(func(u *tlspb.UpstreamTlsContext, _ *tlspb.CommonTlsContext, _ *tlspb.CertificateValidationContext) {
			u.Sni, u.AutoHostSni, u.AutoSniSanValidation = strings.Repeat("a", 255), true, true
		}), &Security{Identity: identity, Roots: roots, SNI: strings.Repeat("a", 255), AutoHostSNI: true, AutoSNISANValidation: true}},
		{"max_verify_depth", onValidation(func(v *tlspb.CertificateValidationContext) { v.MaxVerifyDepth = wrapperspb.UInt32(depth) }),
			&Security{Identity: identity, Roots: roots, MaxDepth: &depth}},
		{"ignored fields", mutual(func(u *tlspb.UpstreamTlsContext, c *tlspb.CommonTlsContext, v *tlspb.CertificateValidationContext) {
			u.AllowRenegotiation, u.MaxSessionKeys = true, wrapperspb.UInt32(1)
			c.AlpnProtocols = []string{"h3"}
			v.TrustedCa = &corepb.DataSource{}
			v.WatchedDirectory = &corepb.WatchedDirectory{Path: "/x"}
			v.AllowExpiredCertificate = true
			v.TrustChainVerification = tlspb.CertificateValidationContext_ACCEPT_UNTRUSTED
			v.RequireSignedCertificateTimestamp = wrapperspb.Bool(false)
		}), &Security{Identity: identity, Roots: roots}},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			_, value, err := ClusterType.Decode(xdsmsg.Any(secured(t, tc.pb)), withProviders())
			xdstest.NoError(t, err)
			if diff := cmp.Diff(tc.want, value.(*Cluster).Security, cmpopts.IgnoreUnexported(Security{}),
				cmpopts.IgnoreFields(CertificateInstance{}, "Provider")); diff != "" {
				t.Errorf("Security (-want +got):\n%s", diff)
			}
		})
	}
}

// Each of these NACKs the Cluster, with the path of the field.
func TestSecurityFaults(t *testing.T) {
	t.Parallel()
	const (
		common  = tlsPath + ".common_tls_context"
		context = common + ".validation_context"
		weaker  = "is not supported, and connections would be less secure without it"
		instead = "is not supported; use tls_certificate_provider_instance"
		unknown = `"x" is not in certificate_providers of the bootstrap, which has "foreign, identity, roots"`
		noRoots = "must be set, unless system_root_certs is"
	)
	extension := &corepb.TypedExtensionConfig{Name: "x"}
	without := func(edit func(*tlspb.CommonTlsContext)) *tlspb.UpstreamTlsContext {
		return onCommon(func(c *tlspb.CommonTlsContext) { c.TlsCertificateProviderInstance = nil; edit(c) })
	}
	withSocket := func(s *corepb.TransportSocket) *clusterpb.Cluster {
		return edsCluster(func(c *clusterpb.Cluster) { c.TransportSocket = s })
	}
	aggregate := xdsmsg.AggregateCluster("blue", "under")
	aggregate.TransportSocket = socket(t, "", onCommon(func(c *tlspb.CommonTlsContext) { c.TlsParams = &tlspb.TlsParameters{} }))
	for _, tc := range []struct {
		given    string
		resource *clusterpb.Cluster
		want     []fault
	}{
		// gRFC A29, "CDS for Client Side Security".
		{"no validation context", secured(t, onCommon(func(c *tlspb.CommonTlsContext) { c.ValidationContextType = nil })),
			[]fault{{common, "validation_context_type must be validation_context or combined_validation_context, is not set"}}},
		{"no common context", secured(t, &tlspb.UpstreamTlsContext{}),
			[]fault{{common, "validation_context_type must be validation_context or combined_validation_context, is not set"}}},
		{"no roots", secured(t, onValidation(func(v *tlspb.CertificateValidationContext) { v.CaCertificateProviderInstance = nil })),
			[]fault{{context + ".ca_certificate_provider_instance", noRoots}}},
		{"no roots in a combined context", secured(t, onCommon(func(c *tlspb.CommonTlsContext) {
			c.ValidationContextType = &tlspb.CommonTlsContext_CombinedValidationContext{}
		})), []fault{{common + ".combined_validation_context.default_validation_context.ca_certificate_provider_instance", noRoots}}},
		{"unknown instances", secured(t, mutual(func(_ *tlspb.UpstreamTlsContext, c *tlspb.CommonTlsContext, v *tlspb.CertificateValidationContext) {
			c.TlsCertificateProviderInstance, v.CaCertificateProviderInstance = instance("x", ""), instance("x", "")
		})), []fault{
			{common + ".tls_certificate_provider_instance.instance_name", unknown},
			{context + ".ca_certificate_provider_instance.instance_name", unknown},
		}},
		{"unknown deprecated instances", secured(t, without(func(c *tlspb.CommonTlsContext) {
			c.TlsCertificateCertificateProviderInstance = oldInstance("x", "")
			c.ValidationContextType = &tlspb.CommonTlsContext_ValidationContextCertificateProviderInstance{
				ValidationContextCertificateProviderInstance: oldInstance("x", ""),
			}
		})), []fault{
			{common + ".tls_certificate_certificate_provider_instance.instance_name", unknown},
			{common + ".validation_context_certificate_provider_instance.instance_name", unknown},
		}},
		{"an instance without a plugin", secured(t, onCommon(func(c *tlspb.CommonTlsContext) {
			c.TlsCertificateProviderInstance = instance("foreign", "")
		})), []fault{{common + ".tls_certificate_provider_instance.instance_name",
			`"foreign" has the plugin_name "c" in certificate_providers of the bootstrap, and this program has no such plugin; import the package that registers it`}}},
		{"an instance without a name", secured(t, onCommon(func(c *tlspb.CommonTlsContext) {
			c.TlsCertificateProviderInstance = instance("", "x")
		})), []fault{{common + ".tls_certificate_provider_instance.instance_name", "must not be empty"}}},
		{"certificates in the resource", secured(t, without(func(c *tlspb.CommonTlsContext) {
			c.TlsCertificates = []*tlspb.TlsCertificate{{}}
		})), []fault{{common + ".tls_certificates", instead}}},
		{"certificates by SDS", secured(t, without(func(c *tlspb.CommonTlsContext) {
			c.TlsCertificateSdsSecretConfigs = []*tlspb.SdsSecretConfig{{Name: "x"}}
		})), []fault{{common + ".tls_certificate_sds_secret_configs", instead}}},
		{"certificates by a provider that is not an instance", secured(t, without(func(c *tlspb.CommonTlsContext) {
			c.TlsCertificateCertificateProvider = &tlspb.CommonTlsContext_CertificateProvider{Name: "x"}
		})), []fault{{common + ".tls_certificate_certificate_provider", instead}}},
		{"validation by SDS", secured(t, onCommon(func(c *tlspb.CommonTlsContext) {
			c.ValidationContextType = &tlspb.CommonTlsContext_ValidationContextSdsSecretConfig{}
		})), []fault{{common, "validation_context_type must be validation_context or combined_validation_context, is validation_context_sds_secret_config"}}},

		// gRFC A29, "CommonTlsContext Processing".
		{"tls_params", secured(t, onCommon(func(c *tlspb.CommonTlsContext) { c.TlsParams = &tlspb.TlsParameters{} })),
			[]fault{{common + ".tls_params", weaker}}},
		{"custom_handshaker", secured(t, onCommon(func(c *tlspb.CommonTlsContext) { c.CustomHandshaker = extension })),
			[]fault{{common + ".custom_handshaker", weaker}}},
		{"what weakens validation", secured(t, onValidation(func(v *tlspb.CertificateValidationContext) {
			v.VerifyCertificateSpki, v.VerifyCertificateHash = []string{"x"}, []string{"x"}
			v.RequireSignedCertificateTimestamp = wrapperspb.Bool(true)
			v.Crl, v.CustomValidatorConfig = &corepb.DataSource{}, extension
		})), []fault{
			{context + ".verify_certificate_spki", weaker},
			{context + ".verify_certificate_hash", weaker},
			{context + ".require_signed_certificate_timestamp", weaker},
			{context + ".crl", weaker},
			{context + ".custom_validator_config", weaker},
		}},
		{"SAN matchers", secured(t, onValidation(func(v *tlspb.CertificateValidationContext) {
			v.MatchTypedSubjectAltNames = []*tlspb.SubjectAltNameMatcher{
				{Matcher: stringMatch("a")}, {SanType: tlspb.SubjectAltNameMatcher_OTHER_NAME, Matcher: stringMatch("a")}, {SanType: tlspb.SubjectAltNameMatcher_DNS},
			}
		})), []fault{
			{context + ".match_typed_subject_alt_names[0].san_type", "must be EMAIL, DNS, URI or IP_ADDRESS, is SAN_TYPE_UNSPECIFIED"},
			{context + ".match_typed_subject_alt_names[1].san_type", "must be EMAIL, DNS, URI or IP_ADDRESS, is OTHER_NAME"},
			{context + ".match_typed_subject_alt_names[2].matcher", "match_pattern must be exact, prefix, suffix, contains or safe_regex, is not set"},
		}},
		{"an untyped SAN matcher", secured(t, onValidation(func(v *tlspb.CertificateValidationContext) {
			v.MatchSubjectAltNames = []*matcherpb.StringMatcher{{}}
		})), []fault{{context + ".match_subject_alt_names[0]", "match_pattern must be exact, prefix, suffix, contains or safe_regex, is not set"}}},

		// gRFC A101, "Validation".
		{"a long sni", secured(t, mutual(func(u *tlspb.UpstreamTlsContext, _ *tlspb.CommonTlsContext, _ *tlspb.CertificateValidationContext) {
			u.Sni = strings.Repeat("a", 256)
		})), []fault{{tlsPath + ".sni", "must have at most 255 characters, has 256"}}},

		{"another type of transport socket", withSocket(socket(t, "envoy.transport_sockets.tls", new(tlspb.DownstreamTlsContext))),
			[]fault{{tlsPath, `has type "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext", want "` + tlsTypeURL + `"`}}},
		{"plaintext by name, with another type", withSocket(socket(t, rawBufferName, new(tlspb.DownstreamTlsContext))),
			[]fault{{tlsPath, `has type "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext", want "` + tlsTypeURL + `"`}}},
		{"an empty transport socket", withSocket(new(corepb.TransportSocket)), []fault{{tlsPath, `has type "", want "` + tlsTypeURL + `"`}}},
		{"an aggregate cluster", aggregate, []fault{{common + ".tls_params", weaker}}},
		{"transport_socket_matches", edsCluster(func(c *clusterpb.Cluster) {
			c.TransportSocketMatches = []*clusterpb.Cluster_TransportSocketMatch{
				{TransportSocket: socket(t, "", new(rawpb.RawBuffer))}, {TransportSocket: socket(t, "", mutual())}, {},
			}
		}), []fault{
			{"transport_socket_matches[1]", "is not supported: all endpoints of a Cluster have the same security, that of transport_socket"},
			{"transport_socket_matches[2]", "is not supported: all endpoints of a Cluster have the same security, that of transport_socket"},
		}},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			xdstest.Equal(t, "faults", tc.want, decodeFaults(t, ClusterType, tc.resource, withProviders()))
		})
	}
}

// What asks for no security, and whose security counts.
func TestClustersWithoutSecurity(t *testing.T) {
	t.Parallel()
	aggregate := xdsmsg.AggregateCluster("blue", "under")
	aggregate.TransportSocket = socket(t, "", mutual())
	for name, c := range map[string]*clusterpb.Cluster{
		"no transport socket": edsCluster(),
		"raw_buffer by type": edsCluster(func(c *clusterpb.Cluster) {
			c.TransportSocket = socket(t, "mine", new(rawpb.RawBuffer))
			c.TransportSocketMatches = []*clusterpb.Cluster_TransportSocketMatch{{TransportSocket: socket(t, "", new(rawpb.RawBuffer))}}
		}),
		"raw_buffer by name": edsCluster(func(c *clusterpb.Cluster) { c.TransportSocket = &corepb.TransportSocket{Name: rawBufferName} }),
		"an aggregate":       aggregate,
	} {
		if got := mustDecode[Cluster](t, ClusterType, c); got.Security != nil {
			t.Errorf("%s: %+v", name, got.Security)
		}
	}
	if mustDecode[Cluster](t, ClusterType, secured(t, mutual())).Security == nil {
		t.Error("without a bootstrap, instances are not checked, and there is no Security")
	}
}

func TestSecurityKey(t *testing.T) {
	t.Parallel()
	options := withProviders()
	decode := func(pb *tlspb.UpstreamTlsContext, o xdsclient.DecodeOptions) *Security {
		c := secured(t, pb)
		c.CircuitBreakers = &clusterpb.CircuitBreakers{} // Not part of it.
		_, value, err := ClusterType.Decode(xdsmsg.Any(c), o)
		xdstest.NoError(t, err)
		return value.(*Cluster).Security
	}
	s := decode(mutual(), options)
	for name, tc := range map[string]struct {
		other *Security
		want  bool
	}{
		"the same":                   {decode(mutual(), options), true},
		"none":                       {nil, false},
		"of another bootstrap":       {decode(mutual(), withProviders()), false},
		"with another configuration": {decode(onCommon(func(c *tlspb.CommonTlsContext) { c.TlsCertificateProviderInstance = nil }), options), false},
	} {
		xdstest.Equal(t, name, tc.want, s.Key() == tc.other.Key())
	}
}

// Only what no channel obeys, and that other channels do not obey it, is listed.
func TestIgnoredFieldsOfTLS(t *testing.T) {
	t.Parallel()
	const common = tlsPath + ".common_tls_context"
	checkIgnored(t, ignoredOf(t, ClusterType, secured(t, mutual(
		func(u *tlspb.UpstreamTlsContext, c *tlspb.CommonTlsContext, v *tlspb.CertificateValidationContext) {
			u.Sni, u.AllowRenegotiation = "a", true
			c.AlpnProtocols = []string{"h2"}
			c.TlsCertificateSdsSecretConfigs = []*tlspb.SdsSecretConfig{{Name: "for-envoy"}}
			v.TrustedCa = &corepb.DataSource{}
			v.AllowExpiredCertificate = true
		}))),
		note{common + ".validation_context.allow_expired_certificate", notActedOn},
		note{common + ".alpn_protocols", notActedOn},
		note{tlsPath + ".allow_renegotiation", notActedOn},
		note{"transport_socket", othersIgnore},
	)
	aggregate := xdsmsg.AggregateCluster("blue", "under")
	aggregate.TransportSocket = socket(t, "", mutual())
	checkIgnored(t, ignoredOf(t, ClusterType, aggregate), note{"transport_socket", ofUnderlying})
}
