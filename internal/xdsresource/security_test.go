package xdsresource

import (
	"slices"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc/credentials/tls/certprovider"

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
	fields = strings.NewReplacer(tlsParts...).Replace(fields)
	return `transport_socket{name:"envoy.transport_sockets.tls" typed_config{[UpstreamTlsContext]{` + fields + `}}}`
}

var tlsParts = []string{
	"$identity", `tls_certificate_provider_instance{instance_name:"identity" certificate_name:"i"}`,
	"$ca", `ca_certificate_provider_instance{instance_name:"roots" certificate_name:"r"}`,
	"$i", `instance_name:"identity" certificate_name:"i"`, "$r", `instance_name:"roots" certificate_name:"r"`,
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
