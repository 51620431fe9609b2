package xdsresource

import (
	"slices"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/peercert"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// secured is a Cluster with an UpstreamTlsContext, given as for tlsContext.
func secured(t testing.TB, fields string) *clusterpb.Cluster {
	t.Helper()
	return blue(t, tlsSocket(fields))
}

// tlsSocket is the field transport_socket with an UpstreamTlsContext of the given fields, in which
// $identity is a client's certificate, $ca the roots, and $i and $r are their instances.
func tlsSocket(fields string) string {
	fields = strings.NewReplacer(
		"$identity", `tls_certificate_provider_instance{instance_name:"identity" certificate_name:"i"}`,
		"$ca", `ca_certificate_provider_instance{instance_name:"roots" certificate_name:"r"}`,
		"$i", `instance_name:"identity" certificate_name:"i"`, "$r", `instance_name:"roots" certificate_name:"r"`,
	).Replace(fields)
	return `transport_socket{name:"envoy.transport_sockets.tls" typed_config{[UpstreamTlsContext]{` + fields + `}}}`
}

const (
	// mutual has everything that a client needs for mTLS.
	mutual  = `common_tls_context{$identity validation_context{$ca}}`
	noRoots = `common_tls_context{$identity validation_context{}}`
)

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
	mtls := func(edit func(*Security)) *Security {
		s := &Security{Identity: identity, Roots: roots}
		edit(s)
		return s
	}
	both := mtls(func(*Security) {})
	for _, tc := range []struct {
		given, fields string
		want          *Security
	}{
		{"mTLS", mutual, both},
		{"TLS", `common_tls_context{validation_context{$ca}}`, &Security{Roots: roots}},
		{"a combined validation context, with the SDS config that Envoy requires", `common_tls_context{$identity
			combined_validation_context{default_validation_context{$ca} validation_context_sds_secret_config{name:"x"}}}`, both},
		{"deprecated instances", `common_tls_context{tls_certificate_certificate_provider_instance{$i}
			validation_context_certificate_provider_instance{$r}}`, both},
		{"a deprecated instance beside a default validation context", `common_tls_context{$identity combined_validation_context{
			default_validation_context{match_subject_alt_names{exact:"spiffe://a/b"}}
			validation_context_certificate_provider_instance{$r}}}`,
			mtls(func(s *Security) { s.SANs = []peercert.Matcher{exactly(peercert.AnySAN, "spiffe://a/b")} })},
		{"an instance and a deprecated one", `common_tls_context{$identity validation_context{$ca}
			tls_certificate_certificate_provider_instance{instance_name:"other"}}`, both},
		{"certificates for others beside an instance", `common_tls_context{$identity validation_context{$ca}
			tls_certificates{} tls_certificate_sds_secret_configs{name:"x"}}`, both},
		{"system roots", `common_tls_context{$identity validation_context{system_root_certs{}}}`, &Security{Identity: identity}},
		{"system roots and an instance", `common_tls_context{$identity validation_context{$ca system_root_certs{}}}`, both},
		{"untyped SANs", `common_tls_context{$identity validation_context{$ca
			match_subject_alt_names{exact:"a"} match_subject_alt_names{exact:"b"}}}`,
			mtls(func(s *Security) {
				s.SANs = []peercert.Matcher{exactly(peercert.AnySAN, "a"), exactly(peercert.AnySAN, "b")}
			})},
		{"typed SANs, which replace untyped ones", `common_tls_context{$identity validation_context{$ca
			match_subject_alt_names{exact:"a"}
			match_typed_subject_alt_names{san_type:EMAIL matcher{exact:"x"}}
			match_typed_subject_alt_names{san_type:DNS matcher{exact:"x"}}
			match_typed_subject_alt_names{san_type:URI matcher{exact:"x"}}
			match_typed_subject_alt_names{san_type:IP_ADDRESS matcher{exact:"x"}}}}`,
			mtls(func(s *Security) {
				for _, typ := range []peercert.SANType{peercert.Email, peercert.DNS, peercert.URI, peercert.IP} {
					s.SANs = append(s.SANs, exactly(typ, "x"))
				}
			})},
		{"server names", mutual + `auto_host_sni:true auto_sni_san_validation:true sni:"` + strings.Repeat("a", 255) + `"`,
			mtls(func(s *Security) { s.SNI, s.AutoHostSNI, s.AutoSNISANValidation = strings.Repeat("a", 255), true, true })},
		{"max_verify_depth", `common_tls_context{$identity validation_context{$ca max_verify_depth{value:2}}}`,
			mtls(func(s *Security) { s.MaxDepth = &depth })},
		{"ignored fields", `common_tls_context{$identity alpn_protocols:"h3" validation_context{$ca
			trusted_ca{} watched_directory{path:"/x"} allow_expired_certificate:true
			trust_chain_verification:ACCEPT_UNTRUSTED require_signed_certificate_timestamp{}}}
			allow_renegotiation:true max_session_keys{value:1}`, both},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			value, err := ClusterType.Decode(xdsmsg.Any(secured(t, tc.fields)), withProviders())
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
		weaker  = ": is not supported, and connections would be less secure without it"
		instead = ": is not supported; use tls_certificate_provider_instance"
		unknown = `: the bootstrap lacks the certificate provider instance "x", which the Cluster asks for; add it to certificate_providers, which has "foreign, identity, roots"`
		unset   = ".ca_certificate_provider_instance: must be set, unless system_root_certs is"
		context = "@.validation_context"
		noType  = "@: validation_context_type must be validation_context or combined_validation_context, is "
		noKind  = ": match_pattern must be exact, prefix, suffix, contains or safe_regex, is not set"
		badType = ".san_type: must be EMAIL, DNS, URI or IP_ADDRESS, is "
	)
	checkTextFaults(t, ClusterType, tlsPath+".common_tls_context", secured, []textCase{
		// gRFC A29, "CDS for Client Side Security".
		{"no validation context", `common_tls_context{$identity}`, noType + "not set"},
		{"no common context", ``, noType + "not set"},
		{"no roots", noRoots, context + unset},
		{"no roots in a combined context", `common_tls_context{$identity combined_validation_context{}}`,
			"@.combined_validation_context.default_validation_context" + unset},
		{"unknown instances", `common_tls_context{tls_certificate_provider_instance{instance_name:"x"}
			validation_context{ca_certificate_provider_instance{instance_name:"x"}}}`,
			"@.tls_certificate_provider_instance.instance_name" + unknown + "; " +
				context + ".ca_certificate_provider_instance.instance_name" + unknown},
		{"unknown deprecated instances", `common_tls_context{tls_certificate_certificate_provider_instance{instance_name:"x"}
			validation_context_certificate_provider_instance{instance_name:"x"}}`,
			"@.tls_certificate_certificate_provider_instance.instance_name" + unknown +
				"; @.validation_context_certificate_provider_instance.instance_name" + unknown},
		{"an instance without a plugin",
			`common_tls_context{tls_certificate_provider_instance{instance_name:"foreign"} validation_context{$ca}}`,
			`@.tls_certificate_provider_instance.instance_name: "foreign" has the plugin_name "c" in certificate_providers of ` +
				`the bootstrap, and this program has no such plugin; import the package that registers it`},
		{"an instance without a name",
			`common_tls_context{tls_certificate_provider_instance{certificate_name:"x"} validation_context{$ca}}`,
			"@.tls_certificate_provider_instance.instance_name: must not be empty"},
		{"certificates in the resource", `common_tls_context{tls_certificates{} validation_context{$ca}}`,
			"@.tls_certificates" + instead},
		{"certificates by SDS", `common_tls_context{tls_certificate_sds_secret_configs{name:"x"} validation_context{$ca}}`,
			"@.tls_certificate_sds_secret_configs" + instead},
		{"certificates beside the deprecated instance", `common_tls_context{tls_certificate_certificate_provider_instance{$i}
			tls_certificates{} tls_certificate_sds_secret_configs{name:"x"} validation_context{$ca}}`,
			"@.tls_certificates" + instead + "; @.tls_certificate_sds_secret_configs" + instead},
		{"certificates by a provider that is not an instance",
			`common_tls_context{tls_certificate_certificate_provider{name:"x"} validation_context{$ca}}`,
			"@.tls_certificate_certificate_provider" + instead},
		{"validation by SDS", `common_tls_context{$identity validation_context_sds_secret_config{}}`,
			noType + "validation_context_sds_secret_config"},

		// gRFC A29, "CommonTlsContext Processing".
		{"tls_params", `common_tls_context{$identity validation_context{$ca} tls_params{}}`, "@.tls_params" + weaker},
		{"custom_handshaker", `common_tls_context{$identity validation_context{$ca} custom_handshaker{name:"x"}}`,
			"@.custom_handshaker" + weaker},
		{"what weakens validation", `common_tls_context{$identity validation_context{$ca
			verify_certificate_spki:"x" verify_certificate_hash:"x" require_signed_certificate_timestamp{value:true}
			crl{} custom_validator_config{name:"x"}}}`,
			context + ".verify_certificate_spki" + weaker + "; " + context + ".verify_certificate_hash" + weaker + "; " +
				context + ".require_signed_certificate_timestamp" + weaker + "; " + context + ".crl" + weaker + "; " +
				context + ".custom_validator_config" + weaker},
		{"SAN matchers", `common_tls_context{$identity validation_context{$ca
			match_typed_subject_alt_names{matcher{exact:"a"}}
			match_typed_subject_alt_names{san_type:OTHER_NAME matcher{exact:"a"}}
			match_typed_subject_alt_names{san_type:DNS}}}`,
			context + ".match_typed_subject_alt_names[0]" + badType + "SAN_TYPE_UNSPECIFIED; " +
				context + ".match_typed_subject_alt_names[1]" + badType + "OTHER_NAME; " +
				context + ".match_typed_subject_alt_names[2].matcher" + noKind},
		{"an untyped SAN matcher", `common_tls_context{$identity validation_context{$ca match_subject_alt_names{}}}`,
			context + ".match_subject_alt_names[0]" + noKind},

		// gRFC A101, "Validation".
		{"a long sni", mutual + `sni:"` + strings.Repeat("a", 256) + `"`,
			tlsPath + ".sni: must have at most 255 characters, has 256"},
	}, withProviders())

	const notTLS = `@: has type "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext", want "` +
		tlsTypeURL + `"`
	const byMatch = ": is not supported: all endpoints of a Cluster have the same security, that of transport_socket"
	checkTextFaults(t, ClusterType, tlsPath, blue, []textCase{
		{"another type of transport socket",
			`transport_socket{name:"envoy.transport_sockets.tls" typed_config{[DownstreamTlsContext]{}}}`, notTLS},
		{"plaintext by name, with another type",
			`transport_socket{name:"` + rawBufferName + `" typed_config{[DownstreamTlsContext]{}}}`, notTLS},
		{"an empty transport socket", `transport_socket{}`, `@: has type "", want "` + tlsTypeURL + `"`},
		{"transport_socket_matches", `transport_socket_matches{transport_socket{typed_config{[RawBuffer]{}}}}
			transport_socket_matches{` + tlsSocket(mutual) + `} transport_socket_matches{}`,
			"transport_socket_matches[1]" + byMatch + "; transport_socket_matches[2]" + byMatch},
	}, withProviders())
	xdstest.Parallel(t, "an aggregate cluster", func(t *testing.T) {
		aggregate := withText(t, xdsmsg.AggregateCluster("blue", "under"),
			tlsSocket(`common_tls_context{$identity validation_context{$ca} tls_params{}}`))
		xdstest.Equal(t, "faults", tlsPath+".common_tls_context.tls_params"+weaker,
			faultText(t, ClusterType, aggregate, withProviders()))
	})
}

// What asks for no security, and whose security counts.
func TestClustersWithoutSecurity(t *testing.T) {
	t.Parallel()
	const raw = `transport_socket{name:"mine" typed_config{[RawBuffer]{}}}`
	for name, c := range map[string]*clusterpb.Cluster{
		"no transport socket": blue(t, ""),
		"raw_buffer by type":  blue(t, raw+`transport_socket_matches{`+raw+`}`),
		"raw_buffer by name":  blue(t, `transport_socket{name:"`+rawBufferName+`"}`),
		"an aggregate":        withText(t, xdsmsg.AggregateCluster("blue", "under"), tlsSocket(mutual)),
	} {
		if got := mustDecode[Cluster](t, ClusterType, c); got.Security != nil {
			t.Errorf("%s: %+v", name, got.Security)
		}
	}
	if mustDecode[Cluster](t, ClusterType, secured(t, mutual)).Security == nil {
		t.Error("without a bootstrap, instances are not checked, and there is no Security")
	}
}

func TestSecurityKey(t *testing.T) {
	t.Parallel()
	options := withProviders()
	decode := func(fields string, o xdsclient.DecodeOptions) *Security {
		c := withText(t, secured(t, fields), `circuit_breakers{}`) // which is not part of the key
		value, err := ClusterType.Decode(xdsmsg.Any(c), o)
		xdstest.NoError(t, err)
		return value.(*Cluster).Security
	}
	s := decode(mutual, options)
	for name, tc := range map[string]struct {
		other *Security
		want  bool
	}{
		"the same":                   {decode(mutual, options), true},
		"none":                       {nil, false},
		"of another bootstrap":       {decode(mutual, withProviders()), false},
		"with another configuration": {decode(`common_tls_context{validation_context{$ca}}`, options), false},
	} {
		xdstest.Equal(t, name, tc.want, s.Key() == tc.other.Key())
	}
}

// Only the fields that no channel obeys are listed.
func TestIgnoredFieldsOfTLS(t *testing.T) {
	t.Parallel()
	const common = tlsPath + ".common_tls_context"
	checkIgnored(t, ignoredOf(t, ClusterType, secured(t, `common_tls_context{$identity alpn_protocols:"h2"
		tls_certificate_sds_secret_configs{name:"for-envoy"}
		validation_context{$ca trusted_ca{} allow_expired_certificate:true}} sni:"a" allow_renegotiation:true`)),
		note{common + ".validation_context.allow_expired_certificate", notActedOn},
		note{common + ".alpn_protocols", notActedOn},
		note{tlsPath + ".allow_renegotiation", notActedOn},
	)
	aggregate := withText(t, xdsmsg.AggregateCluster("blue", "under"), tlsSocket(mutual))
	checkIgnored(t, ignoredOf(t, ClusterType, aggregate), note{"transport_socket", ofUnderlying})
}

// Connections of one Security are good enough for another one only if it asks for nothing more.
func TestSecuritySatisfiedBy(t *testing.T) {
	t.Parallel()
	const (
		none    = ""
		plain   = `common_tls_context{validation_context{$ca}}`
		sansA   = `common_tls_context{validation_context{$ca match_subject_alt_names{exact:"a"}}}`
		sansAB  = `common_tls_context{validation_context{$ca match_subject_alt_names{exact:"b"} match_subject_alt_names{exact:"a"}}}`
		regex   = `common_tls_context{validation_context{$ca match_subject_alt_names{safe_regex{regex:"a"}}}}`
		regexAB = `common_tls_context{validation_context{$ca match_subject_alt_names{safe_regex{regex:"b"}} match_subject_alt_names{safe_regex{regex:"a"}}}}`
		typed   = `common_tls_context{validation_context{$ca match_typed_subject_alt_names{san_type:DNS matcher{exact:"a"}}}}`
		depth1  = `common_tls_context{validation_context{$ca max_verify_depth{value:1}}}`
		depth2  = `common_tls_context{validation_context{$ca max_verify_depth{value:2}}}`
		system  = `common_tls_context{validation_context{system_root_certs{}}}`
		other   = `common_tls_context{validation_context{ca_certificate_provider_instance{instance_name:"identity"}}}`
		sni     = `sni:"a" ` + plain
		checked = `auto_sni_san_validation:true sni:"a" ` + plain
		elsehow = `auto_sni_san_validation:true sni:"b" ` + plain
		byHost  = `auto_sni_san_validation:true auto_host_sni:true sni:"a" ` + plain
	)
	opts := withProviders()
	decode := func(fields string) *Security {
		if fields == none {
			return nil
		}
		value, err := ClusterType.Decode(xdsmsg.Any(secured(t, fields)), opts)
		xdstest.NoError(t, err)
		return value.(*Cluster).Security
	}
	all := []string{none, plain, sansA, sansAB, regex, regexAB, typed, depth1, depth2, system, other, sni, checked, elsehow, byHost, mutual}
	// satisfied lists, for each Security, those whose connections are good enough for it, beside its own.
	satisfied := map[string][]string{
		none:    all,
		plain:   {sansA, sansAB, regex, regexAB, typed, depth1, depth2, sni, checked, elsehow, byHost},
		sni:     {plain, sansA, sansAB, regex, regexAB, typed, depth1, depth2, checked, elsehow, byHost},
		sansAB:  {sansA},
		regexAB: {regex},
		depth2:  {depth1},
	}
	for _, now := range all {
		for _, before := range all {
			want := now == before || slices.Contains(satisfied[now], before)
			if got := decode(now).SatisfiedBy(decode(before)); got != want {
				t.Errorf("%q after %q: satisfied %t, want %t", now, before, got, want)
			}
		}
	}
}
