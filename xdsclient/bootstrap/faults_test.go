package bootstrap

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// Every fault a user can cause has its message here, as the user reads it, but for those that jsondoc, dynparam and
// xdsname have tables of.
func TestFaultMessages(t *testing.T) {
	t.Parallel()
	const target = `a gRPC target such as "dns:///host:port"`
	server := func(uri, creds string) string {
		return fmt.Sprintf(`{"xds_servers": [{"server_uri": %s, "channel_creds": %s}]}`, uri, creds)
	}
	good := `[{"type": "insecure"}]`
	with := func(more string) string { return "{" + servers + "," + more + "}" }
	call := func(creds string) string { return server(`"a"`, good+`, "call_creds": `+creds) }
	tls := func(config string) string { return server(`"a"`, `[{"type": "tls", "config": `+config+`}]`) }
	able := `{"server_uri": "able", "channel_creds": ` + good + `, "server_features": ["dynamic_parameter_constraints"]}`
	dpds := func(name string) string {
		return fmt.Sprintf(`{"xds_servers": [%s], "authorities": {"a": {"dynamic_parameter_constraints_resource": %q}}}`, able, name)
	}
	const atDPDS = `authorities["a"].dynamic_parameter_constraints_resource: `
	const dpdsName = `expected the name of a resource such as "xdstp://AUTHORITY/` + xdsname.ConstraintsMap + `/ID", `
	const noFeature = `expected "dynamic_parameter_constraints" in server_features of a management server of the authority, found it in none: it would be asked for everything without the constraints`
	const typeName = `expected the name of a resource type such as "envoy.config.cluster.v3.Cluster", or "*", `
	const atConstraint = `dynamic_parameter_constraints["*"].key_constraints["env"].constraints[0]`

	for _, test := range []struct {
		given, text string
		want        []string
	}{
		{"empty", ``, []string{"not JSON: line 1, column 1: unexpected end of JSON input"}},
		{"too large", strings.Repeat(" ", maxSize+1), []string{"expected at most 4194304 bytes, found 4194305"}},
		{"not an object", `[]`, []string{"expected an object, found a list"}},
		{"null", `null`, []string{"expected an object, found null"}},

		{"no servers", `{}`, []string{"xds_servers: expected a list with at least one management server, found nothing"}},
		{"misspelt keys", `{"xdsServers": [], "node": {"ids": 1}}`, []string{
			`xds_servers: expected a list with at least one management server, found nothing; the key "xdsServers" is ignored`}},
		// gRFC A102, "Security Considerations".
		{"services of a wrong type", with(`"allowed_grpc_services": []`), []string{"allowed_grpc_services: expected an object, found a list"}},
		{"a service of a wrong type", with(`"allowed_grpc_services": {"a": null}`), []string{`allowed_grpc_services["a"]: expected an object, found null`}},
		{"a service without credentials", with(`"allowed_grpc_services": {"a": {}}`), []string{
			`allowed_grpc_services["a"].channel_creds: expected a list with at least one kind of channel credentials, found nothing`}},
		{"a service with unknown credentials", with(`"allowed_grpc_services": {"a": {"channel_creds": [{"type": "other"}]}}`), []string{
			`allowed_grpc_services["a"].channel_creds: expected a type that this program supports (` + channelTypes.types() + `), found only "other"; add a type with bootstrap.RegisterCredentials`}},
		{"misspelt keys of a server", `{"xds_servers": [{"serverUri": "a", "channel_cred": []}]}`, []string{
			"xds_servers[0].server_uri: expected " + target + `, found nothing; the key "serverUri" is ignored`,
			`xds_servers[0].channel_creds: expected a list with at least one kind of channel credentials, found nothing; the key "channel_cred" is ignored`}},
		{"servers of a wrong type", `{"xds_servers": "a"}`, []string{"xds_servers: expected a list with at least one management server, found a string"}},
		{"an empty list of servers", `{"xds_servers": []}`, []string{"xds_servers: expected a list with at least one management server, found an empty list"}},
		{"a server of a wrong type", `{"xds_servers": [null, 1]}`, []string{
			"xds_servers[0]: expected an object, found null",
			"xds_servers[1]: expected an object, found a number"}},
		{"a key twice", `{"xds_servers": [{"server_uri": "a", "server_uri": "b", "channel_creds": ` + good + `}]}`, []string{
			"xds_servers[0].server_uri: expected the key once, found it again"}},
		{"no URI", `{"xds_servers": [{"channel_creds": ` + good + `}]}`, []string{"xds_servers[0].server_uri: expected " + target + ", found nothing"}},
		{"an empty URI", server(`""`, good), []string{"xds_servers[0].server_uri: expected " + target + ", found an empty string"}},
		{"a URI of a wrong type", server(`true`, good), []string{"xds_servers[0].server_uri: expected " + target + ", found a boolean"}},
		{"a URI with white space", server(`"a b"`, good), []string{"xds_servers[0].server_uri: expected " + target + `, found white space or control characters in "a b"`}},
		{"a web address", server(`"https://a"`, good), []string{"xds_servers[0].server_uri: expected " + target + `, found the web address "https://a"`}},
		{"a URI for xds", server(`"XDS:///a"`, good), []string{"xds_servers[0].server_uri: expected " + target + `, found "XDS:///a", which a management server would have to resolve`}},

		{"no credentials", `{"xds_servers": [{"server_uri": "a"}]}`, []string{"xds_servers[0].channel_creds: expected a list with at least one kind of channel credentials, found nothing"}},
		{"an empty list of credentials", server(`"a"`, `[]`), []string{"xds_servers[0].channel_creds: expected a list with at least one kind of channel credentials, found an empty list"}},
		{"credentials of a wrong type", server(`"a"`, `["insecure"]`), []string{"xds_servers[0].channel_creds[0]: expected an object, found a string"}},
		{"credentials without a type", server(`"a"`, `[{}]`), []string{"xds_servers[0].channel_creds[0].type: expected the type of the credentials, found nothing"}},
		{"a shape error behind the first supported", server(`"a"`, `[{"type": "insecure"}, {"type": "x", "config": []}]`), []string{"xds_servers[0].channel_creds[1].config: expected an object, found a list"}},
		{"only unsupported credentials", server(`"a"`, `[{"type": "google_default"}, {"type": "x"}]`), []string{
			`xds_servers[0].channel_creds: expected a type that this program supports (` + channelTypes.types() + `), found only "google_default", "x"; import _ "github.com/dynxds/dynxds/xdsclient/bootstrap/googledefault" for google_default`}},
		{"only credentials of an unknown type", server(`"a"`, `[{"type": "x"}]`), []string{
			`xds_servers[0].channel_creds: expected a type that this program supports (` + channelTypes.types() + `), found only "x"; add a type with bootstrap.RegisterCredentials`}},
		{"call credentials that are no list", call(`{}`), []string{"xds_servers[0].call_creds: expected a list of call credentials, found an object"}},
		{"call credentials of wrong types", call(`[1, {"type": 1}, {"type": "x", "config": 1}]`), []string{
			"xds_servers[0].call_creds[0]: expected an object, found a number",
			"xds_servers[0].call_creds[1].type: expected the type of the credentials, found a number",
			"xds_servers[0].call_creds[2].config: expected an object, found a number"}},
		{"a token without its file", call(`[{"type": "x"}, {"type": "jwt_token_file"}]`), []string{
			"xds_servers[0].call_creds[1].config.jwt_token_file: expected the path of a file, found nothing"}},
		{"a token with a file of a wrong type", call(`[{"type": "jwt_token_file", "config": {"jwt_token_file": 7}}]`), []string{
			"xds_servers[0].call_creds[0].config.jwt_token_file: expected the path of a file, found a number"}},
		{"features that are no list", `{"xds_servers": [{"server_uri": "a", "channel_creds": ` + good + `, "server_features": "delta"}]}`, []string{
			"xds_servers[0].server_features: expected a list, found a string"}},

		{"a certificate without key", tls(`{"certificate_file": "/c"}`), []string{
			"xds_servers[0].channel_creds[0].config.private_key_file: expected the path of a file, as certificate_file is given, found nothing"}},
		{"a key instead of a path", tls(`{"certificate_file": "/c", "private_key_file": "-----BEGIN PRIVATE KEY-----\nc2VjcmV0"}`), []string{
			"xds_servers[0].channel_creds[0].config.private_key_file: expected the path of a file, found the content of one"}},

		{"a node of a wrong type", with(`"node": "me"`), []string{"node: expected an object, found a string"}},
		{"parts of a node of wrong types", with(`"node": {"id": 1, "cluster": [], "locality": {"region": {}, "zone": 2, "sub_zone": true}, "metadata": "m"}`), []string{
			"node.id: expected a string, found a number",
			"node.cluster: expected a string, found a list",
			"node.locality.region: expected a string, found an object",
			"node.locality.zone: expected a string, found a number",
			"node.locality.sub_zone: expected a string, found a boolean",
			"node.metadata: expected an object, found a string"}},
		{"a locality of a wrong type", with(`"node": {"locality": "here"}`), []string{"node.locality: expected an object, found a string"}},
		{"a number without bounds", with(`"node": {"metadata": {"a": 1e999}}`), []string{"node.metadata: expected numbers that fit a double, found one that does not"}},
		{"metadata nested too deeply", with(`"node": {"metadata": {"a": ` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + `}}`), []string{
			"node.metadata: expected at most 32 levels of nesting, found 33"}},

		{"authorities of a wrong type", with(`"authorities": ["a"]`), []string{"authorities: expected an object, found a list"}},
		{"an authority of a wrong type", with(`"authorities": {"a": null}`), []string{`authorities["a"]: expected an object, found null`}},
		{"an authority twice", with(`"authorities": {"a": {}, "a": {}}`), []string{`authorities["a"]: expected the name once, found it again`}},
		{"a template of another authority", with(`"authorities": {"a": {"client_listener_resource_name_template": "xdstp://b/%s"}}`), []string{
			`authorities["a"].client_listener_resource_name_template: expected a template that starts with "xdstp://a/", found "xdstp://b/%s"`}},
		{"a template whose authority only starts alike", with(`"authorities": {"a": {"client_listener_resource_name_template": "xdstp://ab/%s"}}`), []string{
			`authorities["a"].client_listener_resource_name_template: expected a template that starts with "xdstp://a/", found "xdstp://ab/%s"`}},
		{"a server of an authority", with(`"authorities": {"a": {"xds_servers": [{}]}}`), []string{
			`authorities["a"].xds_servers[0].server_uri: expected ` + target + `, found nothing`,
			`authorities["a"].xds_servers[0].channel_creds: expected a list with at least one kind of channel credentials, found nothing`}},
		{"servers of an authority of a wrong type", with(`"authorities": {"a": {"xds_servers": {}}}`), []string{
			`authorities["a"].xds_servers: expected a list of management servers, found an object`}},
		{"a constraints resource of an unknown authority", dpds("xdstp://b/" + xdsname.ConstraintsMap + "/n"), []string{
			atDPDS + `expected a resource of an authority listed in authorities, found authority "b"`}},
		{"a constraints resource of another type", dpds("xdstp://a/envoy.config.listener.v3.Listener/n"), []string{
			atDPDS + dpdsName + `found the type "envoy.config.listener.v3.Listener"; did you mean "xdstp://a/` + xdsname.ConstraintsMap + `/n"?`}},
		{"several faults of a constraints resource", with(`"authorities": {"a": {"dynamic_parameter_constraints_resource": "xdstp://b/t/n"}}`), []string{
			atDPDS + dpdsName + `found the type "t"; did you mean "xdstp://b/` + xdsname.ConstraintsMap + `/n"?`,
			atDPDS + `expected a resource of an authority listed in authorities, found authority "b"`,
			atDPDS + noFeature}},
		{"a constraints resource for servers without the feature", with(`"authorities": {"a": {"dynamic_parameter_constraints_resource": "dpds"}}`), []string{atDPDS + noFeature}},
		{"a constraints resource for other servers without the feature", `{"xds_servers": [` + able + `], "authorities": {"a": {"dynamic_parameter_constraints_resource": "dpds",
			"xds_servers": [{"server_uri": "a", "channel_creds": ` + good + `}, {"server_uri": "b", "channel_creds": ` + good + `}]}}}`, []string{atDPDS + noFeature}},
		{"a constraints resource for a faulty server", with(`"authorities": {"a": {"dynamic_parameter_constraints_resource": "dpds", "xds_servers": [1]}}`), []string{
			`authorities["a"].xds_servers[0]: expected an object, found a number`}},
		{"a very long name", with(`"authorities": {"` + strings.Repeat("a", 1000) + `": 1}`), []string{
			`authorities["` + strings.Repeat("a", 200) + `…"]: expected an object, found a number`}},

		{"templates of wrong types", with(`"client_default_listener_resource_name_template": 1, "server_listener_resource_name_template": []`), []string{
			"client_default_listener_resource_name_template: expected a string, found a number",
			"server_listener_resource_name_template: expected a string, found a list"}},

		{"no plugin", with(`"certificate_providers": {"p": {"config": {}}}`), []string{
			`certificate_providers["p"].plugin_name: expected the name of a certificate provider plugin, found nothing`}},
		{"a plugin's configuration of a wrong type", with(`"certificate_providers": {"p": {"plugin_name": "file_watcher", "config": "x"}}`), []string{
			`certificate_providers["p"].config: expected an object, found a string`}},
		{"a configuration the plugin refuses", with(`"certificate_providers": {"p": {"plugin_name": "test-plugin", "config": {"refuse": true}}}`), []string{
			`certificate_providers["p"].config: expected a configuration that plugin "test-plugin" accepts; it says: no`}},
		{"a file watcher without files", with(`"certificate_providers": {"p": {"plugin_name": "file_watcher"}}`), []string{
			`certificate_providers["p"].config: expected certificate_file with private_key_file, ca_certificate_file or spiffe_trust_bundle_map_file, found none of them`}},
		{"a file watcher with a key alone", with(`"certificate_providers": {"p": {"plugin_name": "file_watcher", "config": {"private_key_file": "/k"}}}`), []string{
			`certificate_providers["p"].config.certificate_file: expected the path of a file, as private_key_file is given, found nothing`}},
		{"certificate providers of a wrong type", with(`"certificate_providers": {"p": 1}`), []string{`certificate_providers["p"]: expected an object, found a number`}},

		{"constraints of a wrong type", with(`"dynamic_parameter_constraints": []`), []string{"dynamic_parameter_constraints: expected an object, found a list"}},
		{"constraints for types of no resource", with(`"dynamic_parameter_constraints": {"envoy.config.cluster.v3.RouteConfiguration": {}, "Listener": {}}`), []string{
			`dynamic_parameter_constraints["Listener"]: ` + typeName + `found "Listener", which is the type of no resource; did you mean "envoy.config.listener.v3.Listener"?`,
			`dynamic_parameter_constraints["envoy.config.cluster.v3.RouteConfiguration"]: ` + typeName +
				`found "envoy.config.cluster.v3.RouteConfiguration", which is the type of no resource; did you mean "envoy.config.route.v3.RouteConfiguration"?`}},
		{"constraints of a type of a wrong type", with(`"dynamic_parameter_constraints": {"*": 1}`), []string{`dynamic_parameter_constraints["*"]: expected an object, found a number`}},
		{"a range without numbers", with(`"dynamic_parameter_constraints": {"*": {"key_constraints": {"env": {"constraints": [{"integer_range_list": {"range": [{"min_value": -1, "max_value": "x"}]}}]}}}}`), []string{
			atConstraint + ".integer_range_list.range[0].min_value: expected an integer from 0 to 2^64-1, found a number that is none",
			atConstraint + ".integer_range_list.range[0].max_value: expected an integer from 0 to 2^64-1, found a string that is none"}},

		{"metadata constraints of a wrong type", with(`"node_metadata_constraints": "env"`), []string{"node_metadata_constraints: expected a list of keys of node.metadata, found a string"}},
		{"metadata constraints that cannot be", with(`"node": {"metadata": {"a": "x", "n": 1}}, "node_metadata_constraints": ["a", "b", "n", "a", "", 1]`), []string{
			`node_metadata_constraints[1]: expected a key of node.metadata, found "b", which it does not have`,
			`node_metadata_constraints[2]: expected a key of node.metadata whose value is a string, found "n", whose value is not`,
			`node_metadata_constraints[3]: expected each key once, found "a" again`,
			"node_metadata_constraints[4]: expected a key of node.metadata, found an empty string",
			"node_metadata_constraints[5]: expected a key of node.metadata, found a number"}},

		{"a DNS fallback of a wrong type", with(`"dns_fallback": true`), []string{`dns_fallback: expected one of "never", "not_found", "timeout" and "unavailable", found a boolean`}},
		{"an unknown DNS fallback", with(`"dns_fallback": "always"`), []string{`dns_fallback: expected one of "never", "not_found", "timeout" and "unavailable", found "always"`}},

		{"a resource cache of a wrong type", with(`"resource_cache": "/tmp"`), []string{"resource_cache: expected an object, found a string"}},
		{"a resource cache nowhere", with(`"resource_cache": {"max_age": "0s"}`), []string{
			"resource_cache.directory: expected the path of a directory, found nothing",
			`resource_cache.max_age: expected a duration greater than 0 such as "600s", found one that is not`}},
		{"a resource cache in an empty directory", with(`"resource_cache": {"directory": "", "max_age": "day"}`), []string{
			"resource_cache.directory: expected the path of a directory, found an empty string",
			`resource_cache.max_age: expected a duration greater than 0 such as "600s", found a string that is no duration`}},

		{"faults in several places", `{"xds_servers": [{}], "node": 1, "dns_fallback": "x"}`, []string{
			"xds_servers[0].server_uri: expected " + target + ", found nothing",
			"xds_servers[0].channel_creds: expected a list with at least one kind of channel credentials, found nothing",
			"node: expected an object, found a number",
			`dns_fallback: expected one of "never", "not_found", "timeout" and "unavailable", found "x"`}},
	} {
		xdstest.Parallel(t, test.given, func(t *testing.T) {
			_, err := Parse("b.json", []byte(test.text))
			var faults *Faults
			if !errors.As(err, &faults) {
				t.Fatalf("Parse returned %v, want a *Faults", err)
			}
			var got []string
			for _, fault := range faults.List {
				got = append(got, fault.String())
			}
			xdstest.Equal(t, "faults", test.want, got)
		})
	}
}

// Unknown keys are ignored, but the log has those that look like known ones, once: a channel meant
// to stay away from DNS, or to trust one authority alone, does not go astray unnoticed.
func TestMisspeltKeysAreLogged(t *testing.T) {
	t.Parallel()
	const text = `{"xds_servers": [{"server_uri": "a", "other_key": 1, "channel_creds": [
			{"type": "tls", "config": {"ca_certficate_file": "/ca"}}, {"type": "insecure", "config": {"ca_certificate": 1}}], "server_feature": []}],
		"certificate_providers": {"p": {"plugin_name": "file_watcher", "config": {"ca_certificate_file": "/ca", "refreshInterval": "1s"}}},
		"authorities": {"node": {}}, "dns_falback": "never", "fallback_policy": {}}`
	for _, source := range []string{"misspelt 1", "misspelt 2"} {
		for range 2 {
			_, err := Parse(source, []byte(text))
			xdstest.NoError(t, err)
		}
		xdstest.Equal(t, "warnings of "+source, []string{
			`the key "dns_falback" is ignored; did you mean "dns_fallback"?`,
			`xds_servers[0]: the key "server_feature" is ignored; did you mean "server_features"?`,
			`xds_servers[0].channel_creds[0].config: the key "ca_certficate_file" is ignored; did you mean "ca_certificate_file"?`,
			`certificate_providers["p"].config: the key "refreshInterval" is ignored; did you mean "refresh_interval"?`,
		}, logged.After("xDS bootstrap "+source+": "))
	}
}

// An entry of DYNXDS_TRUSTED_XDS_SERVERS that is no server of the bootstrap trusts nobody, which is said once, with the
// servers that there are.
func TestTrustedServersThatAreNoneAreLogged(t *testing.T) {
	const server = `[{"server_uri": %q, "channel_creds": [{"type": "insecure"}]}]`
	text := `{"xds_servers": ` + fmt.Sprintf(server, "unix:///etc/istio/proxy/XDS") + `, "authorities": {"a": {"xds_servers": ` + fmt.Sprintf(server, "dns:///a:443") + `}}}`
	t.Setenv("GRPC_XDS_BOOTSTRAP", "")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", text)
	t.Setenv("DYNXDS_TRUSTED_XDS_SERVERS", " dns:///a:443 , unix:///./etc/istio/proxy/XDS,")
	for range 2 {
		_, err := FromEnv()
		xdstest.NoError(t, err)
	}
	xdstest.Equal(t, "warnings", []string{
		`DYNXDS_TRUSTED_XDS_SERVERS names "unix:///./etc/istio/proxy/XDS", which is no server_uri of the bootstrap, so no server is trusted by that entry; ` +
			`the bootstrap has "unix:///etc/istio/proxy/XDS", "dns:///a:443"`,
	}, logged.After("xDS bootstrap GRPC_XDS_BOOTSTRAP_CONFIG: "))
}

func TestFaultsErrorNamesTheSource(t *testing.T) {
	t.Parallel()
	one := &Faults{Source: "xDS bootstrap /b.json", List: []Fault{{Path: "a", Problem: "p"}}}
	xdstest.Equal(t, "one fault", "xDS bootstrap /b.json: a: p", one.Error())
	many := &Faults{Source: "xDS bootstrap /b.json", List: []Fault{{Path: "a", Problem: "p"}, {Problem: "q"}}, Omitted: 3}
	xdstest.Equal(t, "several faults",
		"xDS bootstrap /b.json: 5 errors:\n  a: p\n  q\n  and 3 more", many.Error())
}

func TestFaultReportIsBounded(t *testing.T) {
	t.Parallel()
	_, err := Parse("", []byte(`{"xds_servers": [`+strings.Repeat("1,", 999)+`1]}`))
	var faults *Faults
	if !errors.As(err, &faults) {
		t.Fatalf("Parse returned %v, want a *Faults", err)
	}
	if len(faults.List) != 100 || faults.Omitted != 900 {
		t.Errorf("got %d faults and %d omitted, want 100 and 900", len(faults.List), faults.Omitted)
	}
	xdstest.Equal(t, "source", "xDS bootstrap "+inMemory, faults.Source)
}

// Decoders like to repeat what they choke on; a key must not reach a log so.
func TestFaultsShowNoSecrets(t *testing.T) {
	t.Parallel()
	plugin := func(config string) string {
		return `{` + servers + `, "certificate_providers": {"p": {"plugin_name": "test-decoder", "config": ` + config + `}}}`
	}
	tls := func(config string) string {
		return `{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "tls", "config": ` + config + `}]}]}`
	}
	for _, test := range []struct{ given, text string }{
		{"plugin, wrong type", plugin(`{"certificate_file": 5551234, "token": "s3cret-token"}`)},
		{"plugin, bad duration", plugin(`{"refresh_interval": "s3cret-token"}`)},
		{"plugin, escaped", plugin(`{"refresh_interval": "s3cret-token\nline \"quoted\""}`)},
		{"tls, key as duration", tls(`{"refresh_interval": "s3cret-token"}`)},
		{"tls, key as path", tls(`{"private_key_file": "s3cret-token\n"}`)},
		{"custom type, nested", `{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "test-decoder", "config": {"k": [{"n": 5551234}, true, "s3cret-token"]}}]}]}`},
		{"custom type, large", `{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "test-decoder", "config": {"k": [{"n": 5551234}, "s3cret-token", "` + strings.Repeat("a", 1<<16) + `"]}}]}]}`},
		{"custom type", `{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "test-chatty", "config": {"k": "s3cret-token", "n": 5551234}}]}]}`},
	} {
		xdstest.Parallel(t, test.given, func(t *testing.T) {
			_, err := Parse("", []byte(test.text))
			if err == nil {
				t.Fatal("Parse succeeded, want faults")
			}
			for _, secret := range []string{"s3cret", "5551234", "quoted", fmt.Sprint([]byte(`"s3cret-token`))[:30]} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error contains %q: %v", secret, err)
				}
			}
		})
	}
}
