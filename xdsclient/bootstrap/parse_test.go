package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// everything is a bootstrap with every key that is known.
const everything = `{
  "xds_servers": [
    {
      "server_uri": "dns:///one:443",
      "channel_creds": [{"type": "google_default"}, {"type": "tls", "config": {
        "ca_certificate_file": "/tls/ca.pem", "certificate_file": "/tls/cert.pem",
        "private_key_file": "/tls/key.pem", "refresh_interval": "1.5s"}}],
      "server_features": ["xds_v3", "trusted_xds_server", {"later": 1}, "delta", "delta", 7, null]
    },
    {"server_uri": "two:443", "channel_creds": [{"type": "insecure"}]}
  ],
  "node": {
    "id": "n", "cluster": "c",
    "locality": {"region": "r", "zone": "z", "sub_zone": "s"},
    "metadata": {"env": "prod", "deep": {"list": [1, true, null]}},
    "user_agent_name": "mine", "client_features": ["mine"]
  },
  "authorities": {
    "xds.example.com": {
      "xds_servers": [{"server_uri": "three:443", "channel_creds": [{"type": "insecure"}],
        "server_features": ["dynamic_parameter_constraints"]}],
      "client_listener_resource_name_template": "xdstp://xds.example.com/envoy.config.listener.v3.Listener/grpc/%s?p=1",
      "dynamic_parameter_constraints_resource": "xdstp://other/envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap/me"
    },
    "other": {}
  },
  "certificate_providers": {
    "files": {"plugin_name": "file_watcher", "config": {"ca_certificate_file": "/tls/ca.pem"}}
  },
  "allowed_grpc_services": {
    "dns:///authz:443": {"channel_creds": [{"type": "insecure"}], "call_creds": [{"type": "test-header", "config": {"a": "service"}}]}
  },
  "client_default_listener_resource_name_template": "xdstp://other/envoy.config.listener.v3.Listener/%s",
  "server_listener_resource_name_template": "server/%s",
  "dynamic_parameter_constraints": {
    "*": {"key_constraints": {"env": {"constraints": [{"value": "prod"}], "invert": false}}},
    "envoy.config.cluster.v3.Cluster": {"keyConstraints": {"shard": {"constraints": [
      {"integerRangeList": {"range": [{"minValue": "1", "max_value": 18446744073709551615}, {"min_value": 0}]}}]}}}
  },
  "node_metadata_constraints": ["env"],
  "dns_fallback": "unavailable",
  "resource_cache": {"directory": "/var/cache/xds", "max_age": "3600s"},
  "comment": 1, "comment": "unknown keys may even be there twice"
}`

func uris(servers []*Server) []string {
	var list []string
	for _, s := range servers {
		list = append(list, s.String())
	}
	return list
}

func TestParseEveryKey(t *testing.T) {
	t.Parallel()
	c := mustParse(t, everything)

	xdstest.Equal(t, "servers", []string{"dns:///one:443", "two:443"}, uris(c.Servers))
	xdstest.Equal(t, "credentials (the first supported type, tls)",
		"tls", c.Servers[0].CredentialsType)
	// gRFC A30: "the client will ignore any entry in the list that it does not
	// understand, regardless of type."
	xdstest.Equal(t, "features", []Feature{FeatureDelta, FeatureTrustedXDSServer}, c.Servers[0].Features)
	if !c.Servers[0].HasFeature(FeatureDelta) || c.Servers[0].HasFeature(FeatureFailOnDataErrors) || c.Servers[1].HasFeature(FeatureDelta) {
		t.Error("HasFeature does not agree with Features")
	}

	metadata, err := structpb.NewStruct(map[string]any{"env": "prod", "deep": map[string]any{"list": []any{1, true, nil}}})
	xdstest.NoError(t, err)
	wantNode := &corev3.Node{
		Id: "n", Cluster: "c",
		Locality:             &corev3.Locality{Region: "r", Zone: "z", SubZone: "s"},
		Metadata:             metadata,
		UserAgentName:        "dynxds",
		UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: "0.1.0"},
		ClientFeatures:       []string{"envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw", "dynxds.client"},
	}
	xdstest.Equal(t, "node", wantNode, c.Node, protocmp.Transform())

	a := c.Authorities["xds.example.com"]
	xdstest.Equal(t, "servers of the authority", []string{"three:443"}, uris(a.Servers))
	if want := "xdstp://other/envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap/me"; a.DynamicParameterConstraintsResource != want {
		t.Errorf("constraints resource is %q, want %q", a.DynamicParameterConstraintsResource, want)
	}
	if c.ServerListenerTemplate != "server/%s" || c.DNSFallback != DNSFallbackUnavailable {
		t.Errorf("server template %q and DNS fallback %q are not those given", c.ServerListenerTemplate, c.DNSFallback)
	}
	if got := c.ResourceCache; got.Directory != "/var/cache/xds" || got.MaxAge != time.Hour {
		t.Errorf("the resource cache is %+v, not as given", got)
	}
	for name, want := range map[string]string{
		"envoy.config.cluster.v3.Cluster": "{env=prod, shard in [0-]}", "envoy.config.listener.v3.Listener": "{env=prod}",
	} {
		xdstest.Equal(t, fmt.Sprintf("the constraints for %s", name),
			want, c.Constraints.For(name).String())
	}
	p := c.CertificateProviders["files"]
	if p.PluginName != "file_watcher" || string(p.Config) != `{"ca_certificate_file": "/tls/ca.pem"}` {
		t.Errorf("certificate provider is %s with %s, not as given", p.PluginName, p.Config)
	}
}

func TestParseDefaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ given, text string }{
		{"keys left out", `{` + servers + `, "authorities": {"a": {}}}`},
		{"null", `{` + servers + `, "authorities": {"a": {"xds_servers": null, "client_listener_resource_name_template": null, "dynamic_parameter_constraints_resource": null}},
			"node": null, "certificate_providers": null, "client_default_listener_resource_name_template": null,
			"server_listener_resource_name_template": null, "dynamic_parameter_constraints": null,
			"node_metadata_constraints": null, "dns_fallback": null, "resource_cache": null}`},
		{"empty", `{` + servers + `, "authorities": {"a": {"xds_servers": [], "client_listener_resource_name_template": ""}},
			"node": {"locality": {}, "id": ""}, "client_default_listener_resource_name_template": "", "node_metadata_constraints": []}`},
	} {
		xdstest.Parallel(t, test.given, func(t *testing.T) {
			c := mustParse(t, test.text)
			wantNode := &corev3.Node{
				UserAgentName:        userAgentName,
				UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: UserAgentVersion},
				ClientFeatures:       clientFeatures,
			}
			xdstest.Equal(t, "node", wantNode, c.Node, protocmp.Transform())
			if c.ClientListenerTemplate != "%s" || c.DNSFallback != DNSFallbackNotFound {
				t.Errorf("got template %q and DNS fallback %q, want %%s and not_found", c.ClientListenerTemplate, c.DNSFallback)
			}
			if c.ResourceCache.Directory != "" {
				t.Errorf("there is a resource cache: %+v", c.ResourceCache)
			}
			a := c.Authorities["a"]
			xdstest.Equal(t, "the template of the authority",
				"xdstp://a/envoy.config.listener.v3.Listener/%s", a.ClientListenerTemplate)
			// gRFC A47: "If not specified, the top-level server list is used."
			xdstest.Equal(t, "servers of the authority", uris(c.Servers), uris(a.Servers))
			plain := mustParse(t, `{`+servers+`, "authorities": {"a": {}}}`)
			if c.Fingerprint() != plain.Fingerprint() {
				t.Error("the fingerprint differs from that of a bootstrap with the keys left out")
			}
		})
	}
}

func TestServerURIsThatDialTakes(t *testing.T) {
	t.Parallel()
	for _, uri := range []string{"localhost:8080", "127.0.0.1:443", "[::1]:443", "dns:///a:1", "dns://8.8.8.8/a:1", "unix:///run/xds.sock", "passthrough:///a:1", "http:80", "a"} {
		c := mustParse(t, `{"xds_servers": [{"server_uri": "`+uri+`", "channel_creds": [{"type": "insecure"}]}]}`)
		if got := c.Servers[0].URI; got != uri {
			t.Errorf("got %q, want %q", got, uri)
		}
	}
}

func TestConfigDoesNotShareTheInput(t *testing.T) {
	t.Parallel()
	data := []byte(everything)
	c, err := Parse("", data)
	xdstest.NoError(t, err)
	clear(data)
	if !json.Valid(c.CertificateProviders["files"].Config) {
		t.Error("a kept configuration changed together with the buffer it was parsed from")
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	base := mustParse(t, everything).Fingerprint()

	var compact any
	xdstest.NoError(t, json.Unmarshal([]byte(strings.Replace(everything, `"max_value": 18446744073709551615`, `"max_value": "18446744073709551615"`, 1)), &compact))
	withQuotes := strings.Replace(everything, `"max_value": 18446744073709551615`, `"max_value": "18446744073709551615"`, 1)
	sorted, err := json.Marshal(compact)
	xdstest.NoError(t, err)
	if got := mustParse(t, string(sorted)).Fingerprint(); got != mustParse(t, withQuotes).Fingerprint() {
		t.Error("key order and white space change the fingerprint")
	}

	for _, test := range []struct {
		given, old, new string
		same            bool
	}{
		{given: "an unknown key", old: `"comment": 1`, new: `"remark": 1`, same: true},
		{given: "an unknown feature", old: `"xds_v3", `, new: ``, same: true},
		{given: "order of features", old: `"trusted_xds_server", {"later": 1}, "delta"`, new: `"delta", "trusted_xds_server"`, same: true},
		{given: "unsupported credentials", old: `{"type": "google_default"}, `, new: ``, same: true},
		{given: "another server", old: "two:443", new: "2:443"},
		{given: "another feature", old: `"delta"`, new: `"fail_on_data_errors"`},
		{given: "another credentials configuration", old: "1.5s", new: "2s"},
		{given: "another node id", old: `"id": "n"`, new: `"id": "m"`},
		{given: "id and cluster swapped", old: `"id": "n", "cluster": "c"`, new: `"id": "c", "cluster": "n"`},
		{given: "another zone", old: `"zone": "z"`, new: `"zone": "y"`},
		{given: "other metadata", old: "[1, true, null]", new: "[1, true, false]"},
		{given: "another server of an authority", old: "three:443", new: "3:443"},
		{given: "another template of an authority", old: "?p=1", new: "?p=2"},
		{given: "another constraints resource", old: "ConstraintsMap/me", new: "ConstraintsMap/you"},
		{given: "another provider configuration", old: `{"ca_certificate_file": "/tls/ca.pem"}}`, new: `{"ca_certificate_file": "/tls/c.pem"}}`},
		{given: "another server template", old: `"server/%s"`, new: `"s/%s"`},
		{given: "another client template", old: `"xdstp://other/envoy.config.listener.v3.Listener/%s"`, new: `"%s"`},
		{given: "other constraints", old: `[{"value": "prod"}]`, new: `[{"value": "test"}]`},
		{given: "metadata constraints that others hide", old: `["env"]`, new: `[]`, same: true},
		{given: "another DNS fallback", old: `"unavailable"`, new: `"never"`},
		{given: "another service", old: "dns:///authz:443", new: "dns:///authz:444"},
		{given: "other credentials of a service", old: `{"a": "service"}`, new: `{"a": "other"}`},
		{given: "another resource cache", old: `"/var/cache/xds"`, new: `"/tmp"`},
	} {
		xdstest.Parallel(t, test.given, func(t *testing.T) {
			changed := strings.Replace(everything, test.old, test.new, 1)
			if changed == everything {
				t.Fatalf("the test changes nothing: %s", test.old)
			}
			if same := mustParse(t, changed).Fingerprint() == base; same != test.same {
				t.Errorf("fingerprints equal: %t, want %t", same, test.same)
			}
		})
	}
}

// Another node is another client: nothing else differs, but the fingerprint does.
func TestWithNode(t *testing.T) {
	t.Parallel()
	c := mustParse(t, everything)
	other := c.WithNode(&corev3.Node{Id: "b"})
	if c.Node.GetId() != "n" || other.Node.GetId() != "b" || other.Servers[0] != c.Servers[0] {
		t.Errorf("got nodes %q and %q", c.Node.GetId(), other.Node.GetId())
	}
	if other.Fingerprint() == c.Fingerprint() || other.WithNode(c.Node).Fingerprint() != c.Fingerprint() {
		t.Error("the fingerprint is not that of the node")
	}
	// xdsclient names the folder of a cache by the client without its cache.
	cached, plain := mustParse(t, `{`+servers+`, "resource_cache": {"directory": "d"}}`), mustParse(t, `{`+servers+`}`)
	xdstest.Equal(t, "the default of max_age", 24*time.Hour, cached.ResourceCache.MaxAge)
	without := *cached
	if without.ResourceCache.Directory = ""; without.WithNode(plain.Node).Fingerprint() != plain.Fingerprint() {
		t.Error("without its resource cache the fingerprint differs")
	}
}

// gRFC A47, "Server Channel Map": the key is "target URI, channel creds, and all
// known server features -- unknown features can be removed".
func TestServerKey(t *testing.T) {
	t.Parallel()
	parse := func(server string) *Server { return mustParse(t, `{"xds_servers": [`+server+`]}`).Servers[0] }
	const tls = `"server_uri": "a", "channel_creds": [{"type": "tls", "config": {"ca_certificate_file": "/c", "refresh_interval": "1s"}}], "server_features": ["delta"]`
	base := parse(`{` + tls + `}`)
	for _, test := range []struct {
		given, server string
		same          bool
	}{
		{"other order and unknown features", `{"server_features": ["x", "delta"], "channel_creds": [{"config": {"refresh_interval": "1s", "ca_certificate_file": "/c"}, "type": "tls"}, {"type": "insecure"}], "server_uri": "a"}`, true},
		{"another URI", `{"server_uri": "b", "channel_creds": [{"type": "tls", "config": {"ca_certificate_file": "/c", "refresh_interval": "1s"}}], "server_features": ["delta"]}`, false},
		{"another configuration", `{"server_uri": "a", "channel_creds": [{"type": "tls", "config": {"ca_certificate_file": "/d", "refresh_interval": "1s"}}], "server_features": ["delta"]}`, false},
		{"another type", `{"server_uri": "a", "channel_creds": [{"type": "insecure", "config": {"ca_certificate_file": "/c", "refresh_interval": "1s"}}], "server_features": ["delta"]}`, false},
		{"unknown call credentials", `{` + tls + `, "call_creds": [{"type": "x"}]}`, true},
		{"call credentials", `{` + tls + `, "call_creds": [{"type": "test-header", "config": {"k": 1}}]}`, false},
		{"other features", `{"server_uri": "a", "channel_creds": [{"type": "tls", "config": {"ca_certificate_file": "/c", "refresh_interval": "1s"}}]}`, false},
	} {
		if same := parse(test.server).Key() == base.Key(); same != test.same {
			t.Errorf("%s: keys equal: %t, want %t", test.given, same, test.same)
		}
	}
	if strings.Contains(base.Key(), "/c") {
		t.Errorf("the key %q shows the configuration of the credentials", base.Key())
	}
}

func TestFromEnv(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.json")
	xdstest.NoError(t, os.WriteFile(path, []byte("{"+servers+"}"), 0o600))
	large := filepath.Join(t.TempDir(), "large.json")
	xdstest.NoError(t, os.WriteFile(large, make([]byte, maxSize+1), 0o600))
	missing := filepath.Join(t.TempDir(), "missing.json")
	pipe := filepath.Join(t.TempDir(), "pipe.json")
	xdstest.NoError(t, syscall.Mkfifo(pipe, 0o600))
	inline := "{" + servers + "}"

	for _, test := range []struct {
		given, file, inline string
		wantSource, wantErr string
		wantIs              error
	}{
		{given: "a file", file: path, wantSource: path},
		{given: "inline", inline: inline, wantSource: "GRPC_XDS_BOOTSTRAP_CONFIG"},
		{given: "both", file: path, inline: "wrong", wantSource: path},
		{given: "neither", wantIs: ErrNotConfigured,
			wantErr: "no xDS bootstrap is configured: set GRPC_XDS_BOOTSTRAP to the path of a bootstrap file, or GRPC_XDS_BOOTSTRAP_CONFIG to its content"},
		{given: "a file that is missing", file: missing, inline: inline, wantIs: fs.ErrNotExist,
			wantErr: "cannot read the xDS bootstrap that GRPC_XDS_BOOTSTRAP names: stat " + missing + ": no such file or directory"},
		{given: "a file that is too large", file: large,
			wantErr: "cannot read the xDS bootstrap that GRPC_XDS_BOOTSTRAP names: " + large + " has more than the 4194304 bytes that are allowed"},
		{given: "a pipe without a writer", file: pipe, inline: inline,
			wantErr: "cannot read the xDS bootstrap that GRPC_XDS_BOOTSTRAP names: " + pipe +
				" is not a regular file; what another program writes can be the content of GRPC_XDS_BOOTSTRAP_CONFIG"},
		{given: "content in place of a path", file: " " + inline,
			wantErr: "GRPC_XDS_BOOTSTRAP has a bootstrap itself, where the path of a file is expected; set GRPC_XDS_BOOTSTRAP_CONFIG to it instead"},
		{given: "a path in place of content", inline: path,
			wantErr: "xDS bootstrap GRPC_XDS_BOOTSTRAP_CONFIG: not JSON: line 1, column 1: invalid character '/' looking for beginning of value; " +
				"the path of a file belongs in GRPC_XDS_BOOTSTRAP"},
		{given: "wrong text inline", inline: "{}",
			wantErr: "xDS bootstrap GRPC_XDS_BOOTSTRAP_CONFIG: xds_servers: expected a list with at least one management server, found nothing"},
	} {
		t.Run(test.given, func(t *testing.T) {
			t.Setenv(envFile, test.file)
			t.Setenv(envInline, test.inline)
			c, err := FromEnv()
			if test.wantErr == "" {
				if err != nil || c.Source != test.wantSource {
					t.Fatalf("got %+v, %v, want a bootstrap from %s", c, err, test.wantSource)
				}
				return
			}
			if err == nil || err.Error() != test.wantErr {
				t.Errorf("got error %v, want %s", err, test.wantErr)
			}
			if test.wantIs != nil && !errors.Is(err, test.wantIs) {
				t.Errorf("the error is no %v", test.wantIs)
			}
		})
	}
}

// The environment can trust servers that the document does not, of any authority.
func TestTrustedServersOfTheEnvironment(t *testing.T) {
	const creds = `"channel_creds": [{"type": "insecure"}]`
	t.Setenv(envFile, "")
	t.Setenv(envInline, `{"xds_servers": [{"server_uri": "unix:///./xds", `+creds+`, "server_features": ["xds_v3"]}, {"server_uri": "b", `+creds+`}],
		"authorities": {"a": {"xds_servers": [{"server_uri": "c", `+creds+`, "server_features": ["delta", "trusted_xds_server"]}]}}}`)
	for _, test := range []struct {
		trusted string
		want    []bool
	}{
		{"", []bool{false, false, true}},
		{"unix:///./xds", []bool{true, false, true}},
		{" b ,c,d", []bool{false, true, true}},
		{"unix:///xds", []bool{false, false, true}},
	} {
		t.Setenv(envTrusted, test.trusted)
		c, err := FromEnv()
		xdstest.NoError(t, err)
		for i, s := range append(c.Servers, c.Authorities["a"].Servers...) {
			if got := s.HasFeature(FeatureTrustedXDSServer); got != test.want[i] || !slices.IsSorted(s.Features) {
				t.Errorf("%q: server %s is trusted: %t, want %t, with sorted features %v", test.trusted, s, got, test.want[i], s.Features)
			}
		}
	}
	trusted, err := FromEnv()
	xdstest.NoError(t, err)
	if plain := mustParse(t, os.Getenv(envInline)); plain.Servers[0].HasFeature(FeatureTrustedXDSServer) || plain.Fingerprint() != trusted.Fingerprint() {
		t.Error("Parse depends on the environment, or a variable without a match changes the fingerprint")
	}
}
