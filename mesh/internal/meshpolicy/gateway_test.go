package meshpolicy_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// parseRoutes reads documents of the Gateway API.
func parseRoutes(text string) ([]*meshpolicy.Policy, error) {
	var faults document.Faults
	var policies []*meshpolicy.Policy
	for _, doc := range document.Parse("f", []byte(text), &faults) {
		policies = append(policies, meshpolicy.ParseRoute(doc, doc.Peek("kind").Text(), &faults)...)
	}
	return policies, faults.Err()
}

func mustParseRoutes(t *testing.T, text string) []*meshpolicy.Policy {
	t.Helper()
	policies, err := parseRoutes(text)
	if err != nil {
		t.Fatalf("ParseRoute:\n%v", err)
	}
	return policies
}

// route is a route of the service s with rules in flow style, which start at line 7.
func route(kind, rules string) string {
	return "apiVersion: gateway.networking.k8s.io/v1\nkind: " + kind + "\nmetadata: {name: p}\nspec:\n  parentRefs: [{group: '', kind: Service, name: s}]\n  rules:\n" + rules
}

// GRPCRoute v1: methods, headers, filters and weights, translated as those of a MeshHTTPRoute.
func TestGateway_GRPCRoute(t *testing.T) {
	t.Parallel()
	policies := mustParseRoutes(t, `
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata:
  name: cart
  namespace: shop
  resourceVersion: "1"
  annotations: {a: b}
spec:
  parentRefs: [{group: "", kind: Service, name: backend, port: 8080}]
  rules:
  - name: first
    matches:
    - method: {service: shop.Cart, method: Add}
      headers: [{name: Env, value: dev}, {name: version, type: RegularExpression, value: "v.*"}]
    - method: {service: shop.Stock}
    filters:
    - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: b}]}}
    - {type: RequestMirror, requestMirror: {fraction: {numerator: 1, denominator: 3}, backendRef: {name: shadow, namespace: default, port: 1}}}
    backendRefs:
    - {name: backend-v1, port: 8080, weight: 9}
    - {name: backend-v2, port: 8080}
  - matches: [{method: {method: Ping}}, {method: {type: RegularExpression, service: "a.*", method: "B|C"}}]
  - backendRefs: [{name: rest, port: 8080}]
status: {parents: []}
`)
	if len(policies) != 1 || policies[0].Name != "GRPCRoute/cart.shop" {
		t.Fatalf("got %+v", policies)
	}
	want := `path Exact /shop.Cart/Add, header env Exact dev, header version RegularExpression v.*
    matches      policy GRPCRoute/cart.shop (f:14)
    filters      policy GRPCRoute/cart.shop (f:18)
                 RequestHeaderModifier set a="b"
                 RequestMirror shadow, 33.3333%
    backendRefs  policy GRPCRoute/cart.shop (f:21)
                 backend-v1.shop, weight 9
                 backend-v2.shop, weight 1
path Prefix /shop.Stock
    matches      policy GRPCRoute/cart.shop (f:16)
    filters      policy GRPCRoute/cart.shop (f:18)
                 RequestHeaderModifier set a="b"
                 RequestMirror shadow, 33.3333%
    backendRefs  policy GRPCRoute/cart.shop (f:21)
                 backend-v1.shop, weight 9
                 backend-v2.shop, weight 1
path RegularExpression /(?:a.*)/(?:B|C)
    matches      policy GRPCRoute/cart.shop (f:23)
    backendRefs  policy GRPCRoute/cart.shop (f:23): none, requests fail
path RegularExpression /[^/]+/Ping
    matches      policy GRPCRoute/cart.shop (f:23)
    backendRefs  policy GRPCRoute/cart.shop (f:23): none, requests fail
any path
    matches      policy GRPCRoute/cart.shop (f:24)
    backendRefs  policy GRPCRoute/cart.shop (f:24)
                 rest.shop
`
	policytest.Equal(t, "the explanation", want, policytest.Merge(policies, meshpolicy.Client{}, "backend.shop").String())
	if notes := policies[0].Notes; len(notes) > 0 {
		t.Errorf("the notes are %v", notes)
	}
	if mirror := policies[0].To[0].Rules[0].Filters[1].Mirror; mirror.Weight != 0 {
		t.Errorf("the mirror has the weight %d", mirror.Weight)
	}
}

// HTTPRoute v1: a match without a path has the prefix "/", the API's default, which Kubernetes writes into
// documents. So it is tried before regular expressions.
func TestGateway_HTTPRoute(t *testing.T) {
	t.Parallel()
	const rule = `
  - matches: [%s]
    filters:
    - {type: URLRewrite, urlRewrite: {hostname: h, path: {type: ReplacePrefixMatch, replacePrefixMatch: /x}}}
    - {type: RequestMirror, requestMirror: {percent: 5, backendRef: {name: shadow, port: 1}}}
  - matches: [{path: {type: RegularExpression, value: "/a.*"}, method: POST}]
`
	var texts []string
	for _, match := range []string{"", "{}", "{path: {value: /}}", `{path: {type: PathPrefix, value: /}}`} {
		policies := mustParseRoutes(t, route("HTTPRoute", fmt.Sprintf(rule, match)))
		text := policytest.Merge(policies, meshpolicy.Client{}, "s").String()
		texts = append(texts, text[strings.Index(text, "filters"):])
	}
	for _, text := range texts[1:] {
		policytest.Equal(t, "rules", texts[0], text)
	}
	want := `filters      policy HTTPRoute/p (f:10)
                 URLRewrite, hostname h, path replacePrefixMatch "/x"
                 RequestMirror shadow, 5%
    backendRefs  policy HTTPRoute/p (f:8): none, requests fail
path RegularExpression /a.*, method POST (never reached: an earlier rule matches everything)
    matches      policy HTTPRoute/p (f:12)
    backendRefs  policy HTTPRoute/p (f:12): none, requests fail
`
	policytest.Equal(t, "the explanation", want, texts[0])
}

// GEP-1294: a route in the namespace of its service, a producer route, is for all clients; one in another
// namespace, a consumer route, for the clients there, for which it goes before the former.
func TestGateway_ProducersAndConsumers(t *testing.T) {
	t.Parallel()
	const text = `
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: %s, namespace: %s}
spec:
  parentRefs: [{group: "", kind: Service, name: backend, namespace: shop}%s]
  rules: [{backendRefs: [{name: %[1]s, namespace: default}]}]
---`
	var names []string
	for _, p := range mustParseRoutes(t, fmt.Sprintf(text, "only", "web", "")) {
		names = append(names, p.Name)
	}
	policies := mustParseRoutes(t, fmt.Sprintf(text, "producer", "shop", "")+fmt.Sprintf(text, "zconsumer", "web", ", {kind: Service, name: local}"))
	for _, p := range policies {
		names = append(names, p.Name)
	}
	policytest.Equal(t, "names", []string{"GRPCRoute/only.web", "GRPCRoute/producer.shop", "GRPCRoute/zconsumer.web", "GRPCRoute/zconsumer.web/consumer"}, names)
	for namespace, want := range map[string]string{"web": "zconsumer", "shop": "producer", "": "producer"} {
		merged := policytest.Merge(policies, meshpolicy.Client{Tags: map[string]string{meshpolicy.NamespaceTag: namespace}}, "backend.shop")
		if got := merged.Rules[0].BackendRefs[0].Name; len(merged.Rules) != 1 || got != want {
			t.Errorf("clients of %q are sent to %s, want %s", namespace, got, want)
		}
	}
	// The consumer route is the producer route of another service.
	if merged := policytest.Merge(policies, meshpolicy.Client{}, "local.web"); len(merged.Rules) != 1 || merged.Rules[0].BackendRefs[0].Name != "zconsumer" {
		t.Errorf("got\n%v", merged)
	}
}

// Routes of the Gateway API and a MeshHTTPRoute are merged like MeshHTTPRoutes.
func TestGateway_IsMergedWithMeshHTTPRoutes(t *testing.T) {
	t.Parallel()
	policies := append(mustParseRoutes(t, route("GRPCRoute", "  - {matches: [{method: {service: a.B}}], backendRefs: [{name: t, port: 1}]}\n")),
		policytest.Parse(t, "g", "name: c\nspec:\n  targetRef: {kind: MeshService, name: frontend}\n  to:\n  - targetRef: {kind: MeshService, name: s}\n    rules:\n"+
			"    - {matches: [{path: {prefix: /a.B}}], filters: [{requestHeaderModifier: {remove: [x]}}]}\n")...)
	want := `path Prefix /a.B
    matches      policy c (g:7), policy GRPCRoute/p (f:7)
    filters      policy c (g:7)
                 RequestHeaderModifier remove x
    backendRefs  policy GRPCRoute/p (f:7)
                 t
any path
    backendRefs  no policy: the service itself
`
	policytest.Equal(t, "the explanation", want, policytest.Merge(policies, frontend, "s").String())
}

// Fields without effect are noted, with their lines.
func TestGateway_Notes(t *testing.T) {
	t.Parallel()
	policies := mustParseRoutes(t, `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: p}
spec:
  hostnames: [example.com]
  parentRefs:
  - {name: gateway}
  - {kind: Service, name: s, port: 1}
  - {kind: Service, name: s, port: 2}
  - {group: core, kind: Service, name: u}
  - {group: gateway.networking.k8s.io, kind: Gateway, name: g}
  - {group: networking.istio.io, kind: Service, name: v}
  rules:
  - timeouts: {request: 1s}
    retry: {attempts: 5, codes: [418, 503]}
    sessionPersistence: {type: Cookie, absoluteTimeout: 1h, idleTimeout: 1h}
    filters: [{type: CORS, cors: {}}]
    backendRefs:
    - {name: t, port: 1}
  - {}
  - matches: [{path: {value: /h}}]
    sessionPersistence: {type: Header, sessionName: a, absoluteTimeout: 1h}
`)
	policytest.Equal(t, "the number of services", 2, len(policies[0].To))
	var got []string
	for _, n := range policies[0].Notes {
		got = append(got, fmt.Sprintf("%d: %s: %s", n.Line, n.Path, n.Text))
	}
	policytest.Equal(t, "notes", []string{
		"6: spec.hostnames: a route of the mesh is for its services under all names, so hostnames makes no difference",
		"18: spec.rules[0].filters[0]: CORS is for browsers, and has no effect on RPCs",
		"16: spec.rules[0].retry.codes[0]: no status that gRPC retries corresponds to the HTTP status 418",
		"16: spec.rules[0].retry.attempts: gRPC retries at most 4 times (gRFC A6)",
		"17: spec.rules[0].sessionPersistence.idleTimeout: idleTimeout has no effect",
		"17: spec.rules[0].sessionPersistence.absoluteTimeout: absoluteTimeout has no effect on a cookie whose lifetimeType is Session",
		"21: spec.rules[1]: an earlier rule has the same matches, so this one has no effect",
		"23: spec.rules[2].sessionPersistence.absoluteTimeout: absoluteTimeout has no effect on sessions by a header",
		"8: spec.parentRefs[0]: the parent is no Service, so the route is not for the mesh",
		"10: spec.parentRefs[2]: an earlier parent is the same service, and ports make no difference",
		"12: spec.parentRefs[4]: the parent is no Service, so the route is not for the mesh",
		"13: spec.parentRefs[5]: the parent is no Service, so the route is not for the mesh",
	}, got)
}

// Timeouts, retries and sessions of rules. Each field is that of the most specific policy that has it.
func TestGateway_LimitsAndSessions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"timeouts: {request: 10s, backendRequest: 2s}":        "timeouts     policy HTTPRoute/p (f:7)\n                 request 10s, backendRequest 2s\n",
		"timeouts: {request: 0s}":                             "timeouts     policy HTTPRoute/p (f:7)\n                 request 0s\n",
		"timeouts: {request: 0s, backendRequest: 2s}":         "                 request 0s, backendRequest 2s\n",
		"timeouts: {request: 2s, backendRequest: 2s}":         "                 request 2s, backendRequest 2s\n",
		"timeouts: {backendRequest: 2s}":                      "                 backendRequest 2s\n",
		"retry: {attempts: 4}":                                "                 on [], attempts 4\n",
		"name: r,\n    retry: {}":                             "retry        policy HTTPRoute/p (f:8)\n",
		"filters: [{requestMirror: {backendRef: {name: t}}}]": "RequestMirror t\n",
		"filters: [{requestMirror: {fraction: {numerator: 5, denominator: 5}, backendRef: {name: t}}}]":                                 "RequestMirror t, 100%\n",
		"backendRefs: [{group: core, kind: Service, name: t, filters: [{responseHeaderModifier: {remove: [a]}}]}]":                      "                 t, ResponseHeaderModifier remove a\n",
		"matches: [{headers: [{name: a, value: '1'}, {name: A, value: '2'}], queryParams: [{name: q, value: x}, {name: q, value: y}]}]": "path Prefix /, header a Exact 1, query q Exact x\n",
		"matches: [{path: {type: Exact, value: /a/}}]":                                                                                  "path Exact /a/\n",
		"matches: [{path: {type: RegularExpression, value: /a/}}]":                                                                      "path RegularExpression /a/\n",
		"retry: {}": "retry        policy HTTPRoute/p (f:7)\n                 on []\n",
		"retry: {codes: [500, 503], attempts: 3, backoff: 100ms}": "retry        policy HTTPRoute/p (f:7)\n                 on [500 503], attempts 3, backoff 100ms\n",
		"sessionPersistence: {}":                                  "sessionPersistence policy HTTPRoute/p (f:7)\n                 cookie session-p-0\n",
		"sessionPersistence: {cookie: {name: a, path: /x, lifetimeType: Permanent}, absoluteTimeout: 1h}":          "                 cookie a\n",
		"sessionPersistence: {sessionName: b, cookieConfig: {lifetimeType: Session}}":                              "                 cookie b\n",
		"sessionPersistence: {type: Header, header: {name: X-Session}}":                                            "                 header x-session\n",
		"sessionPersistence: {type: Header, sessionName: X-Session}":                                               "                 header x-session\n",
		"backendRefs: [{name: t, weight: 0}]":                                                                      "    backendRefs  policy HTTPRoute/p (f:7)\n                 t, weight 0\n",
		"backendRefs: [{name: t, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {remove: [a]}}]}]": "                 t, RequestHeaderModifier remove a\n",
	} {
		policies, err := parseRoutes(route("HTTPRoute", "  - {"+text+"}\n"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := policytest.Merge(policies, meshpolicy.Client{}, "s").String(); !strings.Contains(got, want) {
			t.Errorf("%s is explained as\n%s\nwant\n%s", text, got, want)
		}
		if notes := policies[0].Notes; len(notes) > 0 {
			t.Errorf("the notes on %s are %v", text, notes)
		}
	}
}

// originsOf has, for each merged rule for a client, its matches and the origins of its fields.
func originsOf(policies []*meshpolicy.Policy, c meshpolicy.Client) (list []string) {
	for _, r := range policytest.Merge(policies, c, "s").Rules {
		text := r.Matches[0].String() + ":"
		for f := range meshpolicy.NumFields {
			if r.Has(f) {
				text += " " + meshpolicy.FieldNames[f] + " of " + r.From[f].Policy.Name
			}
		}
		list = append(list, text)
	}
	return list
}

// GRPCRouteRule.matches, HTTPRouteRule.matches (apis/v1): "matching precedence MUST be determined in order of the following criteria,
// continuing on ties: The oldest Route based on creation timestamp. The Route appearing first in alphabetical order". The rule of
// the route with precedence counts as a whole, also with the fields that it does not have. A MeshHTTPRoute is merged with it by field.
func TestGateway_TheOldestRuleWinsWhole(t *testing.T) {
	t.Parallel()
	older := mustParseRoutes(t, strings.Replace(route("HTTPRoute", "  - {timeouts: {request: 1s}}\n"), "{name: p}", "{name: z}", 1))[0]
	newer := mustParseRoutes(t, route("HTTPRoute", "  - {retry: {attempts: 2}, sessionPersistence: {}}\n  - {matches: [{path: {value: /a}}], retry: {attempts: 3}}\n"))[0]
	alike := mustParseRoutes(t, strings.Replace(route("HTTPRoute", "  - {retry: {attempts: 4}}\n"), "{name: p}", "{name: q}", 1))[0]
	older.Created, newer.Created, alike.Created = 1, 2, 2
	above := policytest.New("above", meshpolicy.TargetRef{Name: "client"}, policytest.To("s", meshpolicy.Rule{
		Matches: older.To[0].Rules[0].Matches, Filters: []meshpolicy.Filter{policytest.SetHeader("a", "b")},
	}))
	below := policytest.New("below", meshpolicy.TargetRef{}, policytest.To("", meshpolicy.Rule{
		Matches: older.To[0].Rules[0].Matches, BackendRefs: policytest.Send("t"),
	}))
	all := []*meshpolicy.Policy{alike, newer, older, above, below}
	policytest.Equal(t, "rules of routes", []string{"path Prefix /: backendRefs of HTTPRoute/z timeouts of HTTPRoute/z", "path Prefix /a: backendRefs of HTTPRoute/p retry of HTTPRoute/p"},
		originsOf(all[:3], meshpolicy.Client{}))
	policytest.Equal(t, "rules of routes of one age", []string{"path Prefix /: backendRefs of HTTPRoute/p retry of HTTPRoute/p sessionPersistence of HTTPRoute/p", "path Prefix /a: backendRefs of HTTPRoute/p retry of HTTPRoute/p"},
		originsOf(all[:2], meshpolicy.Client{}))
	policytest.Equal(t, "rules with MeshHTTPRoutes", []string{
		"path Prefix /: filters of above backendRefs of HTTPRoute/z timeouts of HTTPRoute/z", "path Prefix /a: backendRefs of HTTPRoute/p retry of HTTPRoute/p",
	}, originsOf(all, meshpolicy.Client{Service: "client"}))
}

// GEP-1294, "Multiple routes for a Service": "Requests from a namespace with consumer routes will utilize the (possibly merged) set of
// routes in the consumer namespace. Requests from other namespaces will utilize the (possibly merged) set of routes in the producer
// namespace. The merging of routes occurs only within groups of the same type of routes". "Route types": "If multiple routes with
// different types both bind to the same Service and Port pair, only a single route type should be applied", a GRPCRoute first.
func TestGateway_Groups(t *testing.T) {
	t.Parallel()
	named := func(kind, name, namespace, rules string) *meshpolicy.Policy {
		text := strings.Replace(route(kind, rules), "{name: p}", "{name: "+name+", namespace: "+namespace+"}", 1)
		text = strings.Replace(text, "name: s}", "name: s, namespace: default}", 1)
		return mustParseRoutes(t, text)[0]
	}
	filter := "  - {filters: [{type: RequestHeaderModifier, requestHeaderModifier: {remove: [a]}}]}\n"
	producer := named("HTTPRoute", "producer", "default", "  - {matches: [{path: {value: /a}}], timeouts: {request: 1s}}\n  - {timeouts: {request: 1s}}\n")
	consumer := named("HTTPRoute", "consumer", "far", "  - {retry: {attempts: 2}}\n")
	client := func(namespace string) meshpolicy.Client {
		return meshpolicy.Client{Tags: map[string]string{meshpolicy.NamespaceTag: namespace}}
	}
	all := []*meshpolicy.Policy{producer, consumer}
	policytest.Equal(t, "rules for the consumer", []string{"path Prefix /: backendRefs of HTTPRoute/consumer.far retry of HTTPRoute/consumer.far"}, originsOf(all, client("far")))
	producers := []string{"path Prefix /a: backendRefs of HTTPRoute/producer timeouts of HTTPRoute/producer", "path Prefix /: backendRefs of HTTPRoute/producer timeouts of HTTPRoute/producer"}
	policytest.Equal(t, "rules for others", producers, originsOf(all, client("other")))
	// A GRPCRoute displaces HTTPRoutes of its group, and not those of another.
	all = append(all, named("GRPCRoute", "grpc", "far", filter))
	policytest.Equal(t, "rules for the consumer with a GRPCRoute", []string{"any path: filters of GRPCRoute/grpc.far backendRefs of GRPCRoute/grpc.far"}, originsOf(all, client("far")))
	policytest.Equal(t, "rules for others beside it", producers, originsOf(all, client("other")))
	all = append(all, named("GRPCRoute", "grpc", "default", filter))
	policytest.Equal(t, "rules for others with a GRPCRoute", []string{"any path: filters of GRPCRoute/grpc backendRefs of GRPCRoute/grpc"}, originsOf(all, client("other")))
	// MeshHTTPRoutes are of no group.
	all = append(all, policytest.New("mesh", meshpolicy.TargetRef{}, policytest.To("s", meshpolicy.Rule{BackendRefs: policytest.Send("t")})))
	policytest.Equal(t, "rules with a MeshHTTPRoute", []string{"any path: filters of GRPCRoute/grpc.far backendRefs of GRPCRoute/grpc.far"}, originsOf(all, client("far")))
}

// Fields of sessions, with their defaults and in the spelling of earlier versions of the API.
func TestGateway_Sessions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]meshpolicy.Session{
		"{}":                        {Cookie: "session-p-0", Path: "/"},
		"{cookie: {path: ' ~'}}":    {Cookie: "session-p-0", Path: " ~"},
		"{cookieConfig: {name: c}}": {Cookie: "c", Path: "/"},
		"{cookie: {name: a, path: /x, lifetimeType: Permanent}, absoluteTimeout: 1h}": {Cookie: "a", Path: "/x", TTL: time.Hour},
		"{type: Header, sessionName: A, header: {}}":                                  {Header: "a", Path: "/"},
	} {
		policies := mustParseRoutes(t, route("GRPCRoute", "  - {sessionPersistence: "+text+"}\n"))
		policytest.Equal(t, text, &want, policies[0].To[0].Rules[0].Session)
	}
}

// A route without rules, or without matches, is for all requests. A rule without backendRefs leads nowhere, whatever a policy below
// it has (GEP-1294, "Implicit backendRef": it "has been removed … Implementations MUST respect the standard `backendRef` rules").
func TestGateway_EveryRequest(t *testing.T) {
	t.Parallel()
	for rules, want := range map[string]string{"GRPCRoute": "any path\n", "HTTPRoute": "path Prefix /\n"} {
		for _, text := range []string{route(rules, "    []\n"), route(rules, "  - {}\n")} {
			policies := append(mustParseRoutes(t, text), policytest.New("z", meshpolicy.TargetRef{}, policytest.To("s", meshpolicy.Rule{BackendRefs: policytest.Send("t")})))
			got := policytest.Merge(policies, meshpolicy.Client{}, "s").String()
			if !strings.HasPrefix(got, want+"    matches      policy") || !strings.Contains(got, "    backendRefs  policy "+rules+"/p (f") || !strings.Contains(got, "): none, requests fail\n") {
				t.Errorf("%s\nis explained as\n%s", text, got)
			}
		}
	}
	policies := mustParseRoutes(t, route("GRPCRoute", "  - {matches: [{method: {type: RegularExpression, service: 'a?'}}]}\n"))
	policytest.Equal(t, "the path", policytest.Regex("/(?:a?)/[^/]+"), policies[0].To[0].Rules[0].Matches[0].Path)
}

// GRPCMethodMatch: an expression is for a whole name, so that anchors at its begin and end make no difference.
func TestGateway_AnchoredExpressions(t *testing.T) {
	t.Parallel()
	names := []string{"shop", "shop.Cart", "shopping", "web.shop.Cart", "a", "b", "ab", "aa"}
	for _, pattern := range []string{
		`^shop\..*$`, `^shop\..*`, `shop\..*$`, `(?m)^shop$`, `\Ashop\z`, `^(shop|^a)$`, `^shop$|^a.*$`, `(^a)?b`, `(?:(?:^a|b$))`, `^^a$$`, `^\bshop\b.*$`, `(?i)^SHOP$`, `a.*`, `^.*$`,
	} {
		policies := mustParseRoutes(t, route("GRPCRoute", "  - {matches: [{method: {type: RegularExpression, service: '"+pattern+"', method: '"+pattern+"'}}]}\n"))
		whole, path := regexp.MustCompile("^(?:"+pattern+")$"), regexp.MustCompile("^(?:"+policies[0].To[0].Rules[0].Matches[0].Path.Value+")$")
		for _, name := range names {
			if want, got := whole.MatchString(name), path.MatchString("/"+name+"/"+name); got != want {
				t.Errorf("%s: %v matches /%s/%[3]s: %t, want %t", pattern, path, name, got, want)
			}
		}
	}
}

// The names of routes may have dots, those of namespaces have none.
func TestGateway_NamesAreUnique(t *testing.T) {
	t.Parallel()
	var got []string
	for _, metadata := range []string{"{name: api, namespace: shop}", "{name: api.shop}", "{name: api.shop, namespace: default}", "{name: api.shop, namespace: web}", "{name: api}"} {
		got = append(got, mustParseRoutes(t, strings.Replace(route("GRPCRoute", "  - {}\n"), "{name: p}", metadata, 1))[0].Name)
	}
	policytest.Equal(t, "names", []string{"GRPCRoute/api.shop", "GRPCRoute/api.shop.default", "GRPCRoute/api.shop.default", "GRPCRoute/api.shop.web", "GRPCRoute/api"}, got)
}

func TestGateway_Faults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{route("GRPCRoute", "  - {match: []}\n"), `f:7: spec.rules[0]: unknown field "match"; it can be name, matches`},
		{route("GRPCRoute", "  - {matches: [{path: {value: /}}]}\n"), `f:7: spec.rules[0].matches[0]: unknown field "path"`},
		{route("GRPCRoute", "  - {matches: [{method: {}}]}\n"), `f:7: spec.rules[0].matches[0].method: service or method is needed; leave out the condition to match all`},
		{route("GRPCRoute", "  - {matches: [{method: {service: ''}}]}\n"), `f:7: spec.rules[0].matches[0].method.service: an empty name matches nothing`},
		{route("GRPCRoute", "  - {matches: [{method: {service: /shop.Cart}}]}\n"), `f:7: spec.rules[0].matches[0].method.service: "/shop.Cart" cannot be the name of a service of gRPC`},
		{route("GRPCRoute", "  - {matches: [{method: {service: shop.Cart, method: 'Clear Cart'}}]}\n"), `method.method: "Clear Cart" cannot be the name of a method of gRPC`},
		{route("GRPCRoute", "  - {matches: [{method: {type: RegularExpression, service: '('}}]}\n"), `"(" is not a regular expression of RE2`},
		{route("GRPCRoute", "  - {matches: [{method: {type: RegularExpression, service: "+strings.Repeat("a", 5000)+", method: "+strings.Repeat("b", 5000)+"}}]}\n"),
			`f:7: spec.rules[0].matches[0].method: a regular expression has from 1 to 8192 bytes, this one has 10010`},
		{route("GRPCRoute", "  - {matches: [{method: {type: RegularExpression, service: "+strings.Repeat("a", 8190)+"}}]}\n"),
			`f:7: spec.rules[0].matches[0].method: a regular expression has from 1 to 8192 bytes, this one has 8201`},
		{route("GRPCRoute", "  - {matches: [{method: {method: "+strings.Repeat("b", 8190)+"}}]}\n"),
			`f:7: spec.rules[0].matches[0].method: a regular expression has from 1 to 8192 bytes, this one has 8197`},
		{route("GRPCRoute", "  - {matches: [{method: {type: RegularExpression, service: 'a^b', method: 'c.*'}}]}\n"),
			`f:7: spec.rules[0].matches[0].method.service: "a^b" has an anchor where no name begins or ends; leave ^ and $ out, as the expression is for the whole name`},
		{route("GRPCRoute", "  - {matches: [{method: {type: RegularExpression, method: '(a$)+'}}]}\n"), `method.method: "(a$)+" has an anchor where no name begins or ends`},
		{route("GRPCRoute", "  - {matches: [{method: {type: RegularExpression, method: 'a$|b?$c'}}]}\n"), `method.method: "a$|b?$c" has an anchor where no name begins or ends`},
		{route("GRPCRoute", "  - {matches: [{headers: [{name: a, value: \"b\\n\"}]}]}\n"), `f:7: spec.rules[0].matches[0].headers[0].value: "b\n" has a character that values of headers do not have`},
		{route("GRPCRoute", "  - {matches: [{headers: [{name: a, type: Prefix, value: b}]}]}\n"), `unknown value "Prefix"; it can be Exact, RegularExpression`},
		{route("GRPCRoute", "  - {filters: [{type: URLRewrite, urlRewrite: {hostname: h}}]}\n"), `f:7: spec.rules[0].filters[0].type: a GRPCRoute has no filter of type URLRewrite; write an HTTPRoute`},
		{route("GRPCRoute", "  - {filters: [{type: ExtensionRef}]}\n"), `f:7: spec.rules[0].filters[0].type: unknown value "ExtensionRef"`},
		{route("GRPCRoute", "  - {timeouts: {request: 1s}}\n"), `f:7: spec.rules[0]: unknown field "timeouts"`},
		{route("HTTPRoute", "  - {matches: [{methods: [GET]}]}\n"), `unknown field "methods"; did you mean "method"?`},
		{route("HTTPRoute", "  - {matches: [{path: {type: Prefix, value: /}}]}\n"), `unknown value "Prefix"; it can be Exact, PathPrefix`},
		{route("HTTPRoute", "  - {matches: [{path: {value: a}}]}\n"), `a path starts with /, and "a" does not`},
		{route("HTTPRoute", "  - {filters: [{type: RequestMirror, requestMirror: {percent: 1, fraction: {numerator: 1}, backendRef: {name: s}}}]}\n"), `percent and fraction say the same thing`},
		{route("HTTPRoute", "  - {filters: [{type: RequestMirror, requestMirror: {fraction: {numerator: 101}, backendRef: {name: s}}}]}\n"), `the numerator is larger than the denominator, 100`},
		{route("HTTPRoute", "  - {backendRefs: [{name: t, filters: [{type: RequestMirror, requestMirror: {backendRef: {name: t}}}]}]}\n"),
			`f:7: spec.rules[0].backendRefs[0].filters: a RequestMirror of a single backend is not supported; write it as a filter of the rule`},
		{route("HTTPRoute", "  - {backendRefs: [{kind: Bucket, group: storage, name: s}]}\n"), `f:7: spec.rules[0].backendRefs[0]: a backend of the mesh is a Service`},
		{route("HTTPRoute", "  - {timeouts: {request: 1s, backendRequest: 2s}}\n"), `timeouts.backendRequest: an attempt, of 2s, cannot be longer than the request as a whole, of 1s`},
		{route("HTTPRoute", "  - {timeouts: {request: 1.5s}}\n"), `timeouts.request: "1.5s" is no duration; write it like 1m30s or 500ms`},
		{route("HTTPRoute", "  - {timeouts: {backend: 1s}}\n"), `unknown field "backend"`},
		{route("HTTPRoute", "  - {retry: {attempts: 0}}\n"), `retry.attempts: expected an integer from 1`},
		{route("HTTPRoute", "  - {retry: {codes: [200]}}\n"), `retry.codes[0]: expected an integer from 400 to 599`},
		{route("GRPCRoute", "  - {sessionPersistence: {type: Header}}\n"), `sessionPersistence: the header with the session has no name`},
		{route("GRPCRoute", "  - {sessionPersistence: {cookie: {lifetimeType: Permanent}}}\n"), `sessionPersistence: a permanent cookie needs an absoluteTimeout`},
		{route("GRPCRoute", "  - {sessionPersistence: {cookie: {lifetimeType: Permanent}, absoluteTimeout: 0s}}\n"), `sessionPersistence.absoluteTimeout: a permanent cookie needs an absoluteTimeout above 0`},
		{route("GRPCRoute", "  - {sessionPersistence: {sessionName: 'a b'}}\n"), `sessionPersistence.sessionName: "a b" cannot be the name of a cookie`},
		{route("GRPCRoute", "  - {sessionPersistence: {cookie: {name: 'a=b'}}}\n"), `sessionPersistence.cookie.name: "a=b" cannot be the name of a cookie`},
		{route("GRPCRoute", "  - {sessionPersistence: {cookie: {path: 'a;b'}}}\n"), `sessionPersistence.cookie.path: "a;b" cannot be the path of a cookie`},
		{route("GRPCRoute", "  - {sessionPersistence: {type: Header, sessionName: 'X Session'}}\n"), `sessionPersistence.sessionName: sessions cannot be identified by the header "X Session"`},
		{route("GRPCRoute", "  - {sessionPersistence: {type: Header, header: {name: grpc-x}}}\n"), `sessionPersistence.header.name: sessions cannot be identified by the header "grpc-x"`},
		{strings.Replace(route("HTTPRoute", "  - {}\n"), "kind: Service, ", "", 1), `f:5: spec.parentRefs: no parent is a Service; routes of gateways are not for the mesh`},
		{"kind: GRPCRoute\n", "f:1: the field \"apiVersion\" is missing\nf:1: the field \"metadata\" is missing\nf:1: the field \"spec\" is missing"},
		{strings.Replace(route("HTTPRoute", "  - {}\n"), "io/v1", "io/v2", 1), `apiVersion: unknown value "gateway.networking.k8s.io/v2"`},
		{strings.Replace(route("HTTPRoute", "  - {}\n"), "[{group: '', kind: Service, name: s}]", "1", 1), `f:5: spec.parentRefs: expected a list`},
		{route("HTTPRoute", "  - {name: 1}\n"), `f:7: spec.rules[0].name: expected a string`},
		{route("HTTPRoute", "  - {timeouts: {request: 5}}\n"), `timeouts.request: expected a string`},
		{route("HTTPRoute", "  - {filters: [{requestRedirect: {hostname: a}}], backendRefs: [{name: t}]}\n"), `backendRefs: a request that is redirected (RequestRedirect) goes to no backend`},
		{route("GRPCRoute", "  - {filters: [{type: RequestRedirect, requestRedirect: {hostname: h}}]}\n"), `a GRPCRoute has no filter of type RequestRedirect`},
		{route("GRPCRoute", "  - {filters: [{type: 1}]}\n"), `filters[0].type: expected a string`},
		{route("GRPCRoute", "  - {matches: [{method: {service: 1}}]}\n"), `method.service: expected a string`},
		{route("GRPCRoute", "  - {matches: [{method: {type: RegularExpression, method: '('}}]}\n"), `method.method: "(" is not a regular expression of RE2`},
		{route("HTTPRoute", "  - {backendRefs: [{group: storage, name: s}]}\n"), `backendRefs[0]: a backend of the mesh is a Service`},
		{route("HTTPRoute", "  - {backendRefs: [{kind: Bucket, name: s}]}\n"), `backendRefs[0]: a backend of the mesh is a Service`},
		{route("HTTPRoute", "  - {backendRefs: [{name: s, port: 0}]}\n"), `backendRefs[0].port: expected an integer from 1`},
		{route("GRPCRoute", "  - {sessionPersistence: {type: Header, sessionName: user-agent}}\n"), `sessions cannot be identified by the header "user-agent"`},
		{route("GRPCRoute", "  - {sessionPersistence: {type: Header, sessionName: 1}}\n"), `sessionPersistence.sessionName: expected a string`},
		{route("GRPCRoute", "  - {sessionPersistence: {cookie: {lifetimeType: Permanent}, absoluteTimeout: 5}}\n"), `sessionPersistence.absoluteTimeout: expected a string`},
		{route("GRPCRoute", "  - {sessionPersistence: {cookie: {path: \"\\t\"}}}\n"), `"\t" cannot be the path of a cookie`},
		{route("GRPCRoute", "  - {sessionPersistence: {cookie: {path: \"\\x7f\"}}}\n"), `"\x7f" cannot be the path of a cookie`},
	} {
		policies, err := parseRoutes(test.text)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Count(err.Error(), "\n") != strings.Count(test.want, "\n") || len(policies) > 0 {
			t.Errorf("%s\ngives %v, %v, want %s", test.text, policies, err, test.want)
		}
	}
}
