package bootstrap

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

const federated = `{` + servers + `,
	"client_default_listener_resource_name_template": "xdstp://xds.authority.com/envoy.config.listener.v3.Listener/grpc/client/%s?project_id=1234",
	"authorities": {
		"xds.authority.com": {"client_listener_resource_name_template": "xdstp://xds.authority.com/envoy.config.listener.v3.Listener/grpc/client/%s?project_id=1234"},
		"xds.other.com": {"xds_servers": [{"server_uri": "xds-server.other.com", "channel_creds": [{"type": "insecure"}]}]}
	}}`

// The examples of gRFC A47, "Bootstrap Config Changes", and the rules in its
// comments.
func TestListenerName(t *testing.T) {
	t.Parallel()
	withDefault := func(template string) string {
		return fmt.Sprintf(`{%s, "authorities": {"a": {}, "": {}, "x y": {}, "a!b": {}, "c!d": {"client_listener_resource_name_template": "xdstp://c%%21d/t/%%s"}}, "client_default_listener_resource_name_template": %q}`, servers, template)
	}
	for _, test := range []struct{ given, text, authority, endpoint, want string }{
		{"no new fields", `{` + servers + `}`, "", "server.example.com", "server.example.com"},
		{"no new fields, port", `{` + servers + `}`, "", "server.example.com:123", "server.example.com:123"},
		{"new-style names on the client, no authority",
			`{` + servers + `, "client_default_listener_resource_name_template": "xdstp://xds.authority.com/envoy.config.listener.v3.Listener/%s", "authorities": {"xds.authority.com": {}}}`,
			"", "server.example.com", "xdstp://xds.authority.com/envoy.config.listener.v3.Listener/server.example.com"},
		{"multiple authorities, no authority", federated, "", "server.example.com",
			"xdstp://xds.authority.com/envoy.config.listener.v3.Listener/grpc/client/server.example.com?project_id=1234"},
		{"multiple authorities, first", federated, "xds.authority.com", "server.example.com",
			"xdstp://xds.authority.com/envoy.config.listener.v3.Listener/grpc/client/server.example.com?project_id=1234"},
		{"multiple authorities, second", federated, "xds.other.com", "server.other.com",
			"xdstp://xds.other.com/envoy.config.listener.v3.Listener/server.other.com"},

		{"old-style template: not encoded", withDefault("p/%s"), "", "[::1]:8080", "p/[::1]:8080"},
		{"xdstp template: encoded", withDefault("xdstp://a/t/%s"), "", "[::1]:8080", "xdstp://a/t/%5B::1%5D:8080"},
		{"slashes stay", withDefault("xdstp://a/t/%s"), "", "my/service", "xdstp://a/t/my/service"},
		{"what RFC 3986, section 3.3, allows stays", withDefault("xdstp://a/t/%s"), "", "aZ09-._~!$&'()*+,;=:@/", "xdstp://a/t/aZ09-._~!$&'()*+,;=:@/"},
		{"everything else is encoded", withDefault("xdstp://a/t/%s"), "", "?#% é", "xdstp://a/t/%3F%23%25%20%C3%A9"},
		{"authority's template: encoded", withDefault("%s"), "a", "b?c", "xdstp://a/envoy.config.listener.v3.Listener/b%3Fc"},
		{"every %s", withDefault("%s/%s"), "", "a", "a/a"},
		{"no %s", withDefault("all"), "", "a", "all"},
		{"other verbs stay", withDefault("%d%%s"), "", "a", "%d%a"},
		{"an empty authority in the template", withDefault("xdstp:///t/%s"), "", "a", "xdstp:///t/a"},
		{"no authority in the template", withDefault("xdstp:t/%s"), "", "a", "xdstp:t/a"},
		{"an encoded authority", withDefault("xdstp://x%20y/t/%s"), "", "a", "xdstp://x%20y/t/a"},
		{"an authority that needs no escape", withDefault("%s"), "a!b", "x", "xdstp://a!b/envoy.config.listener.v3.Listener/x"},
		{"a template that spells its authority otherwise", withDefault("%s"), "c!d", "x", "xdstp://c%21d/t/x"},
		{"an authority to encode", withDefault("%s"), "x y", "a", "xdstp://x%20y/envoy.config.listener.v3.Listener/a"},
	} {
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			got, err := mustParse(t, test.text).ListenerName(test.authority, test.endpoint)
			if err != nil || got != test.want {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

// gRFC A47: "it is an error if the specified authority is not present in this
// map".
func TestListenerNameErrors(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 12 {
		many = append(many, fmt.Sprintf(`"a%02d": {}`, i))
	}
	for _, test := range []struct{ given, text, authority, endpoint, want string }{
		{"no authorities", `{` + servers + `}`, "xds.authority.com", "e",
			`xDS bootstrap test: authority "xds.authority.com" is unknown; add it to authorities, which is empty`},
		{"other authorities", federated, "b", "e",
			`xDS bootstrap test: authority "b" is unknown; authorities has "xds.authority.com", "xds.other.com"`},
		{"many authorities", `{` + servers + `, "authorities": {` + strings.Join(many, ",") + `}}`, "b", "e",
			`xDS bootstrap test: authority "b" is unknown; authorities has "a00", "a01", "a02", "a03", "a04", "a05", "a06", "a07", "a08", "a09" and 2 more`},
		{"the default template's authority", `{` + servers + `, "authorities": {"a": {}}, "client_default_listener_resource_name_template": "xdstp://b/%s"}`, "", "e",
			`xDS bootstrap test: authority "b", named by client_default_listener_resource_name_template, is unknown; authorities has "a"`},
		{"the service as authority", `{` + servers + `}`, "greeter:80", "",
			`xDS bootstrap test: authority "greeter:80" is unknown; add it to authorities, which is empty; the target has no path: did you mean "xds:///greeter:80"?`},
		{"the service as authority beside others", federated, "greeter", "",
			`xDS bootstrap test: authority "greeter" is unknown; authorities has "xds.authority.com", "xds.other.com"; the target has no path: did you mean "xds:///greeter"?`},
		{"no endpoint", `{` + servers + `}`, "", "",
			"xDS bootstrap test: the target has no endpoint to make the name of a Listener from"},
	} {
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			got, err := mustParse(t, test.text).ListenerName(test.authority, test.endpoint)
			if err == nil || err.Error() != test.want {
				t.Errorf("got %q, %v, want error %s", got, err, test.want)
			}
		})
	}
}

func TestAuthority(t *testing.T) {
	t.Parallel()
	c := mustParse(t, federated)
	for name, want := range map[string]string{"xds.authority.com": "dns:///xds.example.com:443", "xds.other.com": "xds-server.other.com"} {
		got, err := c.Authority(name)
		xdstest.NoError(t, err)
		xdstest.Equal(t, fmt.Sprintf("servers for %q", name), []string{want}, uris(got.Servers))
	}
	for name, want := range map[string]string{
		"b": `xDS bootstrap test: authority "b" is unknown; authorities has "xds.authority.com", "xds.other.com"`,
		"":  `xDS bootstrap test: authority "", of names that start with "xdstp:///", is unknown; authorities has "xds.authority.com", "xds.other.com"`,
	} {
		if _, err := c.Authority(name); err == nil || err.Error() != want {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}
