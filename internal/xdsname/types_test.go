package xdsname

import (
	"strings"
	"testing"
)

func TestCheckType(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		known bool
		want  string // the end of the error
	}{
		{"envoy.config.route.v3.RouteConfiguration", true, ""},
		{"envoy.extensions.transport_sockets.tls.v3.Secret", true, ""},
		{ConstraintsMap, true, `which is asked for without constraints (xRFC TP2, "Non-Cacheability of DPDS")`},
		// Types that a program may have of its own.
		{"acme.v1.Thing", false, ""},
		{"acme.v1.Cluster", false, ""},
		{"Thing", false, ""},
		{"envoy.config.later.v4.Thing", false, ""},
		// TP2's own text has these two.
		{"envoy.config.cluster.v3.RouteConfiguration", false, `found "envoy.config.cluster.v3.RouteConfiguration", which is the type of no resource; did you mean "envoy.config.route.v3.RouteConfiguration"?`},
		{"envoy.config.cluster.v3.ClusterLoadAssignment", false, `did you mean "envoy.config.endpoint.v3.ClusterLoadAssignment"?`},
		{"envoy.api.v2.Cluster", false, `did you mean "envoy.config.cluster.v3.Cluster"?`},
		{"envoy.config.listener.v3.listener", false, `did you mean "envoy.config.listener.v3.Listener"?`},
		{"type.googleapis.com/envoy.config.cluster.v3.Cluster", false, `did you mean "envoy.config.cluster.v3.Cluster"?`},
		{"cluster", false, `did you mean "envoy.config.cluster.v3.Cluster"?`},
		{"envoy.config.cluster.v3.Clusters", false, `did you mean "envoy.config.cluster.v3.Cluster" or "envoy.config.cluster.v3.ClusterCollection"?`},
		{"envoy.service.runtime.v3.RuntimeLayer", false, `did you mean "envoy.service.runtime.v3.Runtime"?`},
		{strings.Repeat("x", 10_000) + ".Thing", false, ""},
		{"envoy." + strings.Repeat("x", 10_000) + ".Cluster", false, `…", which is the type of no resource; did you mean "envoy.config.cluster.v3.Cluster"?`},
	} {
		known, err := CheckType(test.name)
		if known != test.known || (err != nil) != (test.want != "") || err != nil && !strings.HasSuffix(err.Error(), test.want) {
			t.Errorf("CheckType(%.100q) = %v, %v, want %v, %s", test.name, known, err, test.known, test.want)
		}
	}
}

func TestCheckConstraintsMap(t *testing.T) {
	t.Parallel()
	const good = "xdstp://a/" + ConstraintsMap + "/client"
	for _, test := range []struct{ name, want string }{
		{good, ""},
		{good + "?x=1", ""},
		{"xdstp://a/" + ConstraintsMap + "/dir/*/client", ""},
		{"xdstp:/" + ConstraintsMap + "/client", ""},
		{"old-style", ""},
		{"xdstp://a/envoy.config.context_params.v3.DynamicContextParameters/my_context_params?x=1",
			`found the type "envoy.config.context_params.v3.DynamicContextParameters"; did you mean "xdstp://a/` + ConstraintsMap + `/my_context_params?x=1"?`},
		{"xdstp://a/envoy.config.listener.v3.Listener/x", `found the type "envoy.config.listener.v3.Listener"; did you mean "xdstp://a/` + ConstraintsMap + `/x"?`},
		{"xdstp://a/" + ConstraintsMap + "/*", `which is the name of a collection`},
		{"xdstp://a/" + ConstraintsMap + "/dir/*?x=1", `which is the name of a collection`},
		{"xdstp://a/" + ConstraintsMap, `expected xdstp://AUTHORITY/TYPE/ID, found no id`},
		{"xdstp://a/" + ConstraintsMap + "/", `expected xdstp://AUTHORITY/TYPE/ID, found no id`},
		{"xdstp://a", `expected xdstp://AUTHORITY/TYPE/ID, found no type`},
		{good + "#alt=xdstp://b/x/y", `the directive alt is not supported`},
		{good + "#", `the name of a resource has no # and no directives`},
		{"xdstp://a/" + ConstraintsMap + "/%zz", `id: invalid URL escape "%zz"`},
		{"xdstp://a/" + ConstraintsMap + "/%ff", `id: not valid UTF-8`},
		{"*", `"*" asks for every resource and names none`},
	} {
		err := CheckConstraintsMap(test.name)
		if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("CheckConstraintsMap(%q) = %v, want %q", test.name, err, test.want)
		}
	}
}
