package meshroute

import (
	"strings"
	"testing"

	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	headerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// Reports have the line of what gRPC cannot express, or of what is wrong.
func TestReports(t *testing.T) {
	t.Parallel()
	const at = "policy p: spec.to[0].rules[0]."
	tests := []struct {
		given, rule string
		then        []string
	}{
		{"nothing to report", "{matches: [{path: {type: Prefix, value: /p.S}}], backendRefs: [{kind: MeshService, name: s}]}", nil},
		{"methods with POST", "{matches: [{methods: [GET, POST]}]}", []string{
			"note: " + at + "matches: every RPC has the method POST, so methods makes no difference"}},
		{"methods without", "{matches: [{methods: [PUT, GET]}]}", []string{"warning: " + at + "matches: every RPC has the method POST, so no RPC matches GET, PUT"}},
		{"paths that no RPC has", "{matches: [{path: {exact: /a}}, {path: {prefix: /a/b/c}}]}", []string{
			"warning: " + at + "matches: the path of an RPC is /package.Service/Method, so no RPC matches Exact /a",
			"warning: " + at + "matches: the path of an RPC is /package.Service/Method, so no RPC matches Prefix /a/b/c"}},
		{"packages, not services", "{matches: [{path: {prefix: /grpc.health}}, {path: {prefix: /a.}}, {path: {prefix: /a/B}}, {path: {exact: /a/B}}]}", []string{
			"warning: " + at + `matches: prefixes match whole segments: /a. matches the methods of a service of that name, and no service of a package; write the service, as in /grpc.health.v1.Health, or the regular expression /a\..*`,
			"warning: " + at + `matches: prefixes match whole segments: /grpc.health matches the methods of a service of that name, and no service of a package; write the service, as in /grpc.health.v1.Health, or the regular expression /grpc\.health\..*`}},
		{"query parameters", "{matches: [{queryParams: [{name: a, value: b}]}]}", []string{"warning: " + at + "matches: the path of an RPC has no query, so no RPC matches queryParams"}},
		{"binary headers", "{matches: [{headers: [{name: a-bin, type: Present}]}, {headers: [{name: b-bin, type: Absent}]}]}", []string{
			`warning: ` + at + `matches: gRPC takes headers whose names end in -bin for absent, so no RPC matches "a-bin Present"`}},
		{"a redirect", "{filters: [{requestRedirect: {hostname: h}}]}", []string{
			"warning: " + at + "filters[0]: gRPC clients do not follow redirects: RPCs end with an error that names the place",
			"note: " + at + "filters[0]: gRPC clients other than those of dynxds are not told the place: their RPCs fail with UNAVAILABLE, as if there were no endpoint"}},
		{"a mirror", "{filters: [{requestMirror: {backendRef: {kind: MeshService, name: s}}}]}", []string{
			"note: " + at + "filters[0]: dynxds and Envoy send copies; other gRPC clients ignore it"}},
		{"a rewrite", "{filters: [{urlRewrite: {hostname: h, path: {replaceFullPath: /a}}}]}", []string{
			"note: " + at + "filters[0]: clients rewrite the authority only if the server has trusted_xds_server in their bootstrap configuration (gRFC A81)",
			"note: " + at + "filters[0]: dynxds and Envoy rewrite the path; other gRPC clients ignore it",
			"warning: " + at + "filters[0]: the path of an RPC is /package.Service/Method; no gRPC server has /a"}},
		{"header edits", "{filters: [{requestHeaderModifier: {set: [{name: user-agent, value: x}], remove: [grpc-timeout, x]}}, {responseHeaderModifier: {add: [{name: user-agent, value: x}]}}]}", []string{
			"note: " + at + "filters[0]: dynxds and Envoy edit headers; other gRPC clients ignore it",
			`warning: ` + at + `filters[0]: gRPC clients leave this out: header "grpc-timeout": headers of the gRPC protocol cannot be edited`,
			`warning: ` + at + `filters[0]: gRPC clients leave this out: header "user-agent": gRPC fills this header in`,
			"note: " + at + "filters[1]: dynxds and Envoy edit headers; other gRPC clients ignore it"}},
		{"binary header edits", "{filters: [{requestHeaderModifier: {set: [{name: a-bin, value: '!!'}, {name: b-bin, value: YWI}, {name: c, value: 5%}]}}]}", []string{
			"note: " + at + "filters[0]: dynxds and Envoy edit headers; other gRPC clients ignore it",
			`warning: ` + at + `filters[0]: gRPC clients leave this out: header "a-bin": the value of a -bin header must be in base64`}},
		{"a mirror to a subset without endpoints", "{filters: [{requestMirror: {backendRef: {kind: MeshServiceSubset, name: s, tags: {v: x}}}}]}", []string{
			"note: " + at + "filters[0]: dynxds and Envoy send copies; other gRPC clients ignore it",
			"warning: " + at + "filters[0]: no endpoint of service s has the tags {v=x}; the copies of requests fail"}},
		{"a subset without endpoints", "{backendRefs: [{kind: MeshServiceSubset, name: s, tags: {v: x}}]}", []string{
			"warning: " + at + "backendRefs[0]: no endpoint of service s has the tags {v=x}; requests that go there fail"}},
		{"services that do not exist", "{filters: [{requestMirror: {backendRef: {kind: MeshService, name: t}}}], backendRefs: [{kind: MeshService, name: u}]}", []string{
			`error: ` + at + `backendRefs[0]: the mesh has no service "u"; requests that go there fail; did you mean "s"?`,
			"note: " + at + "filters[0]: dynxds and Envoy send copies; other gRPC clients ignore it",
			`warning: ` + at + `filters[0]: the mesh has no service "t"; requests are not mirrored; did you mean "s"?`}},
		{"a service of weight 0 that does not exist, and a subset of weight 0 without endpoints",
			"{backendRefs: [{kind: MeshService, name: s}, {kind: MeshService, name: u, weight: 0}, {kind: MeshServiceSubset, name: s, tags: {v: x}, weight: 0}]}", []string{
				`note: ` + at + `backendRefs[1]: the mesh has no service "u"; no requests go there; did you mean "s"?`}},
		{"no weight", "{backendRefs: [{kind: MeshService, name: s, weight: 0}]}", []string{
			"note: " + at + "backendRefs: in gRPC clients other than those of dynxds the RPCs fail with UNAVAILABLE, as if there were no endpoint",
			"warning: " + at + "backendRefs: no backend has a weight above 0, so RPCs fail with UNAVAILABLE"}},
		{"a regular expression behind a rule for everything", "{matches: [{path: {prefix: /}}, {path: {regularExpression: /x.*}}]}", []string{
			`warning: ` + at + `matches: "path RegularExpression /x.*" is never reached by clients that also have the rule for the path prefix /, which is tried before regular expressions and matches without a path`}},
	}
	for _, test := range tests {
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			policies := policytest.Parse(t, "f", policytest.Text("    - "+test.rule+"\n"))
			m := accepted(t, Input{Policies: policies, Services: services("s")}, nil)
			var got []string
			for _, r := range m.Reports() {
				text, ok := strings.CutPrefix(r.String(), "f:7: ")
				if !ok {
					t.Errorf("%v is not on line 7", r)
				}
				got = append(got, text)
			}
			policytest.Equal(t, "reports", test.then, got)
		})
	}
}

func TestReports_OnServicesAndDestinations(t *testing.T) {
	t.Parallel()
	filter := func(m proto.Message, optional bool) *hcmpb.HttpFilter {
		packed, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		return &hcmpb.HttpFilter{Name: "f", IsOptional: optional, ConfigType: &hcmpb.HttpFilter_TypedConfig{TypedConfig: packed}}
	}
	s := &Service{Name: "s", Source: Source{File: "s.yaml", Line: 2}, Endpoints: []Endpoint{{Address: "10.0.0.1:80"}, {Address: "host:80"}}, Filters: []*hcmpb.HttpFilter{
		filter(&faultpb.HTTPFault{}, false), filter(&headerpb.HeaderMutation{}, true), filter(&headerpb.HeaderMutation{}, false),
	}}
	p := policytest.New("p", TargetRef{}, meshpolicy.To{Rules: []meshpolicy.Rule{{}}}, policytest.To("gone", meshpolicy.Rule{}))
	var got []string
	for _, r := range mustBuild(t, Input{Services: []*Service{s}, Policies: []*Policy{p}}, nil).Reports() {
		got = append(got, r.String())
	}
	policytest.Equal(t, "reports", []string{
		`p.yaml:1: error: policy p: spec.to[1].targetRef: the mesh has no service "gone"`,
		`s.yaml:2: warning: endpoints[1].address: "host" is a name; Envoy and gRPC in languages other than Go take IP addresses only, and do not get this endpoint`,
		`s.yaml:2: warning: filters[2]: other gRPC clients than those of dynxds that do not have the filter envoy.extensions.filters.http.header_mutation.v3.HeaderMutation reject the Listener; with is_optional they do without`,
	}, got)
}

// An HTTPRoute beside a GRPCRoute for the same clients has no effect. An HTTPRoute for the clients of another namespace has one.
func TestReports_OnDisplacedRoutes(t *testing.T) {
	t.Parallel()
	route := func(kind, name string, clients TargetRef) *Policy {
		return meshpolicy.New(meshpolicy.Policy{
			Kind: kind, Name: name, TargetRef: clients, To: []meshpolicy.To{policytest.To("s", meshpolicy.Rule{BackendRefs: policytest.Send("s")})},
		})
	}
	in := Input{Services: services("s"), Policies: []*Policy{
		route(meshpolicy.HTTPRouteKind, "HTTPRoute/h", TargetRef{}), route(meshpolicy.GRPCRouteKind, "GRPCRoute/g", TargetRef{}),
		route(meshpolicy.HTTPRouteKind, "HTTPRoute/c", TargetRef{Tags: map[string]string{meshpolicy.NamespaceTag: "web"}}),
	}}
	var got []string
	for _, r := range mustBuild(t, in, nil).Reports() {
		got = append(got, r.String())
	}
	displaced := "warning: policy HTTPRoute/h: spec.parentRefs: this has no effect: GRPCRoute/g is for the service s, too, and beside a GRPCRoute no HTTPRoute counts"
	policytest.Equal(t, "reports", []string{displaced}, got)

	// Neither the HTTPRoute without effect, nor the one of other clients, hides a rule of the GRPCRoute.
	everything := policytest.On(policytest.Prefix("/"))
	in.Policies[0].To[0].Rules[0].Matches, in.Policies[2].To[0].Rules[0].Matches = everything, everything
	in.Policies[1].To[0].Rules[0].Matches = policytest.On(policytest.Regex("/x.*"))
	for i, p := range in.Policies {
		in.Policies[i] = meshpolicy.New(*p)
	}
	got = nil
	for _, r := range mustBuild(t, in, nil).Reports() {
		got = append(got, r.String())
	}
	policytest.Equal(t, "reports of expressions", []string{displaced}, got)
}

// A subset without endpoints is reported at the tag that no endpoint has, with what it may be meant to be.
func TestReports_OnTags(t *testing.T) {
	t.Parallel()
	tagged := service("s")
	tagged.Endpoints = []Endpoint{{Address: "10.0.0.1:80", Tags: map[string]string{"version": "v1", "zone": "a"}}, {Address: "10.0.0.2:80", Tags: map[string]string{"version": "v2"}}}
	for tags, want := range map[string]string{
		"version: v1\n          zone: a":   "",
		"zone: a\n          version: v3":   `f:12: warning: policy p: spec.to[0].rules[0].backendRefs[0]: no endpoint of service s has the tags {version=v3,zone=a}; requests that go there fail; did you mean "v1"?`,
		"zone: a\n          vresion: v1":   `f:12: warning: policy p: spec.to[0].rules[0].backendRefs[0]: no endpoint of service s has the tags {vresion=v1,zone=a}; requests that go there fail; did you mean "version"?`,
		"version: blue\n          zone: a": `f:11: warning: policy p: spec.to[0].rules[0].backendRefs[0]: no endpoint of service s has the tags {version=blue,zone=a}; requests that go there fail; it can be v1, v2`,
		"version: v2\n          zone: a":   `f:8: warning: policy p: spec.to[0].rules[0].backendRefs[0]: no endpoint of service s has the tags {version=v2,zone=a}; requests that go there fail`,
	} {
		text := "    - backendRefs:\n      - kind: MeshServiceSubset\n        name: s\n        tags:\n          " + tags + "\n"
		m := accepted(t, Input{Policies: policytest.Parse(t, "f", policytest.Text(text)), Services: []*Service{tagged}}, nil)
		var got []string
		for _, r := range m.Reports() {
			got = append(got, r.String())
		}
		policytest.Equal(t, tags, want, strings.Join(got, "\n"))
	}
}

// Of the rules of two routes with the same matches only one counts: here those of routes for two ports of a service.
func TestReports_OnRulesOfTwoRoutes(t *testing.T) {
	t.Parallel()
	rule := func(path string) meshpolicy.Rule {
		return meshpolicy.Rule{Matches: policytest.On(policytest.Prefix(path)), BackendRefs: policytest.Send("s")}
	}
	route := func(name, namespace string, rules ...meshpolicy.Rule) *Policy {
		p := meshpolicy.Policy{Kind: meshpolicy.HTTPRouteKind, Name: name, To: []meshpolicy.To{policytest.To("s", rules...)}}
		if namespace != "" {
			p.TargetRef.Tags = map[string]string{meshpolicy.NamespaceTag: namespace}
		}
		return meshpolicy.New(p)
	}
	in := Input{Services: services("s"), Policies: []*Policy{
		route("a", "", rule("/"), rule("/p.A")), route("b", "", rule("/p.B"), rule("/")), route("c", "", rule("/")), route("d", "web", rule("/")),
		policytest.New("mesh", TargetRef{}, policytest.To("s", rule("/"))),
	}}
	var got []string
	for _, r := range mustBuild(t, in, nil).Reports() {
		got = append(got, r.String())
	}
	policytest.Equal(t, "reports", []string{
		"warning: policy b: spec.rules[1].matches: this rule has no effect: the route a, which goes before this one, has a rule for the service s with the same matches",
		"warning: policy c: spec.rules[0].matches: this rule has no effect: the route a, which goes before this one, has a rule for the service s with the same matches",
	}, got)
}
