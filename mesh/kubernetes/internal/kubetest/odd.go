package kubetest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Odd returns an object of a random kind in a namespace, with random values: most are odd, and the API server accepts most of
// them. Some are about the Service of another namespace, NAME.NAMESPACE. There are few names, so that objects replace one
// another.
func Odd(r *rand.Rand, namespace, service string) (*unstructured.Unstructured, error) {
	o := odd{r}
	kind := o.any("Service", "Service", "EndpointSlice", "EndpointSlice", "EndpointSlice", "HTTPRoute", "GRPCRoute", "MeshHTTPRoute", "MeshHTTPRoute", "ReferenceGrant")
	text := map[string]func() string{
		"Service": o.service, "EndpointSlice": o.slice, "HTTPRoute": o.httpRoute, "GRPCRoute": o.grpcRoute, "MeshHTTPRoute": o.policy, "ReferenceGrant": o.grant,
	}[kind]()
	name, of, _ := strings.Cut(service, ".")
	text = strings.NewReplacer("OTHER_NAMESPACE", of, "OTHER", name, "metadata: {", "kind: "+kind+", metadata: {").Replace(text)
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), object); err != nil {
		return nil, fmt.Errorf("%w in %s", err, text)
	}
	object.SetNamespace(namespace)
	object.SetName(fmt.Sprint("odd-", r.IntN(names)))
	return object, nil
}

// names is the number of names of each kind.
const names = 4

// odd makes texts of objects.
type odd struct{ *rand.Rand }

// any returns one of several texts.
func (o odd) any(of ...string) string { return of[o.IntN(len(of))] }

// one returns mostly the first of several texts: an object with many oddities would be refused as a whole.
func (o odd) one(usual string, odd ...string) string {
	if o.IntN(6) > 0 {
		return usual
	}
	return o.any(odd...)
}

// some joins up to n texts, seldom none.
func (o odd) some(n int, text func() string) string {
	var list []string
	for range o.IntN(n) + min(o.IntN(10), 1) {
		list = append(list, text())
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func (o odd) serviceName() string { return fmt.Sprint("odd-", o.IntN(names)) }

func (o odd) service() string {
	number := 8079
	port := func() string {
		number++
		return fmt.Sprintf("{name: p%d, port: %d%s}", number, number, o.one("", ", protocol: UDP", ", protocol: SCTP", ", appProtocol: grpc", ", appProtocol: example.com/odd"))
	}
	spec := o.one("clusterIP: None", "type: ExternalName, externalName: "+o.any("example.com", "10.0.0.1", "a-1.b.", "x"), "ipFamilyPolicy: PreferDualStack", "selector: {a: b}")
	return `{apiVersion: v1, metadata: {labels: {}}, spec: {` + spec + `, ports: ` + o.some(4, port) + `}}`
}

func (o odd) slice() string {
	kind := o.one("IPv4", "IPv6", "FQDN")
	addresses := map[string][]string{
		"IPv4": {"10.0.0.1", "010.001.002.003", "10.0.0.2", "255.255.255.255", "203.0.113.9"},
		"IPv6": {"fd00::1", "FD00::1", "fd00:0:0::1", "::ffff:10.0.0.1", "fd00::2"},
		"FQDN": {"example.com", "example.com.", "a-b.c.d", strings.Repeat("a.", 100) + "b"},
	}[kind]
	condition := func(name string) string { return o.one("", name+": true, ", name+": false, ") }
	endpoint := func() string {
		return fmt.Sprintf(`{addresses: ["%s"], conditions: {%s}%s%s%s%s}`, o.any(addresses...),
			condition("ready")+condition("serving")+condition("terminating"),
			o.one("", `, zone: "`+o.any("", "a", " a b\t", "é", "a/b;c=d", strings.Repeat("z", 300))+`"`),
			o.one("", `, nodeName: n`+fmt.Sprint(o.IntN(3))),
			o.one("", `, hints: {forZones: [{name: a}, {name: b}]}`, `, hints: {forZones: [], forNodes: [{name: n1}]}`),
			o.one("", `, targetRef: {kind: Pod, uid: u`+fmt.Sprint(o.IntN(2))+`}`, `, targetRef: {}`))
	}
	port := func() string {
		return `{name: "` + o.one("p8080", "", "p8081") + `"` + o.one(", port: 8080", "", ", port: "+o.any("0", "-1", "70000", "65536", "2147483647", "-2147483648")) + o.one("", ", protocol: UDP") + "}"
	}
	service := o.one(o.serviceName(), "OTHER", "no-such", `""`)
	return `{apiVersion: discovery.k8s.io/v1, metadata: {labels: {kubernetes.io/service-name: ` + service + `}}, addressType: ` + kind +
		`, endpoints: ` + o.some(6, endpoint) + `, ports: ` + o.some(2, port) + `}`
}

func (o odd) backend() string {
	return `{name: ` + o.one(o.serviceName(), "OTHER", "no-such") + o.one("", ", namespace: OTHER_NAMESPACE") + o.one("", ", port: 8080", ", port: 1", ", port: 65535") +
		o.one("", ", weight: 0", ", weight: 1000000", ", weight: 7") + o.one("", ", kind: Odd, group: example.com") + `}`
}

func (o odd) header() string {
	return `{name: ` + o.one("a", "X-B", `":method"`, "grpc-timeout", "a-bin", "host", "te") + `, value: "` + o.one("a", "", "%", "%REQ(a)%", "é", "(", "a b", strings.Repeat("v", 4000)) + `"}`
}

func (o odd) parents() string {
	return o.some(3, func() string {
		return `{group: ` + o.one(`""`, "core", "serving.knative.dev") + `, kind: Service, name: ` + o.any(o.serviceName(), "OTHER, namespace: OTHER_NAMESPACE") +
			o.one("", ", port: 8080", ", port: 9") + o.one("", ", sectionName: p8080", ", sectionName: odd") + `}`
	})
}

func (o odd) match(path string) string {
	return `{` + path + o.one("", `, headers: [{name: a, type: `+o.one("Exact", "RegularExpression")+`, value: "`+o.one("a", "(", "[a-z]+", "a{1,1000}", "(?i)a", "\\\\")+`"}]`) + `}`
}

func (o odd) filter(backend func() string) string {
	return o.any(
		`{type: RequestHeaderModifier, requestHeaderModifier: {set: `+o.some(1, o.header)+`, remove: [`+o.one("b", "a", "grpc-status")+`]}}`,
		`{type: ResponseHeaderModifier, responseHeaderModifier: {add: `+o.some(1, o.header)+`}}`,
		`{type: RequestMirror, requestMirror: {backendRef: `+backend()+`}}`,
		o.one(`{type: RequestMirror, requestMirror: {backendRef: `+backend()+`}}`,
			`{type: ExtensionRef, extensionRef: {group: example.com, kind: Odd, name: a}}`,
			`{type: RequestRedirect, requestRedirect: {port: 1, statusCode: 302}}`,
			`{type: URLRewrite, urlRewrite: {hostname: a, path: {type: ReplaceFullPath, replaceFullPath: "/%\\\\1"}}}`,
			`{type: Odd}`))
}

func (o odd) httpRoute() string {
	filter := func() string { return o.filter(o.backend) }
	rule := func() string {
		path := `path: {type: ` + o.any("Exact", "PathPrefix", "RegularExpression") + `, value: "` + o.one(fmt.Sprint("/", o.IntN(1000)), "/a/b", "/a%20b", "/(", "/a?", "/"+strings.Repeat("a", 1000)) + `"}`
		return `{matches: ` + o.some(3, func() string { return o.match(path) }) + `, filters: ` + o.one(o.some(1, filter), o.some(2, filter)) + `, backendRefs: ` + o.some(3, o.backend) +
			o.one("", ", timeouts: {request: 0s}", ", timeouts: {request: 99999h, backendRequest: 1ms}") + `}`
	}
	return `{apiVersion: gateway.networking.k8s.io/v1, metadata: {labels: {}}, spec: {parentRefs: ` + o.parents() + `, rules: ` + o.some(3, rule) + `}}`
}

func (o odd) grpcRoute() string {
	filter := func() string { return o.filter(o.backend) }
	rule := func() string {
		method := `method: {` + o.one("", "type: RegularExpression, ") + o.one(fmt.Sprint("service: a.B", o.IntN(1000)), "method: C", "service: a.B, method: C", `service: "^a$"`) + `}`
		return `{matches: ` + o.some(3, func() string { return o.match(method) }) + `, filters: ` + o.one(o.some(1, filter), o.some(2, filter)) + `, backendRefs: ` + o.some(3, o.backend) + `}`
	}
	return `{apiVersion: gateway.networking.k8s.io/v1, metadata: {labels: {}}, spec: {parentRefs: ` + o.parents() + `, rules: ` + o.some(3, rule) + `}}`
}

func (o odd) policy() string {
	ref := func() string {
		return `{kind: MeshService, name: ` + o.any(o.serviceName(), "OTHER, namespace: OTHER_NAMESPACE") + o.one("", ", sectionName: p8080", ", sectionName: odd") + `}`
	}
	clients := o.any("", `targetRef: {kind: MeshSubset, tags: {`+o.any("namespace", "service_account", "pod", "node", "zone", "t0", "t1", "t2", "xds_zone", "service")+`: `+o.any("a", "b", "OTHER_NAMESPACE")+`}}, `,
		`targetRef: {kind: MeshService, name: default`+o.one("", ", namespace: OTHER_NAMESPACE")+`}, `)
	backend := func() string {
		return `{kind: MeshService, name: ` + o.one(o.serviceName(), "OTHER") + o.one("", ", namespace: OTHER_NAMESPACE") + o.one("", ", port: 1") + o.one("", ", weight: 4294967295", ", weight: 0") + `}`
	}
	filter := func() string { return o.filter(ref) }
	rule := func() string {
		path := `path: {type: ` + o.any("Exact", "Prefix", "RegularExpression") + `, value: "` + o.one(fmt.Sprint("/", o.IntN(1000)), "/", "/(", "a{1,1001}") + `"}`
		return `{matches: ` + o.some(3, func() string { return o.match(path) }) + `, filters: ` + o.one(o.some(1, filter), o.some(2, filter)) + `, backendRefs: ` + o.some(3, backend) + `}`
	}
	to := func() string {
		return `{targetRef: ` + o.any(`{kind: Mesh}`, ref(), ref()) + `, rules: ` + o.some(3, rule) + `}`
	}
	return `{apiVersion: dynxds.io/v1alpha1, metadata: {labels: {}}, spec: {` + clients + `to: ` + o.some(3, to) + `}}`
}

func (o odd) grant() string {
	return `{apiVersion: gateway.networking.k8s.io/v1beta1, metadata: {labels: {}}, spec: {from: [{group: ` + o.any("gateway.networking.k8s.io", "dynxds.io", `""`) +
		`, kind: ` + o.any("HTTPRoute", "GRPCRoute", "MeshHTTPRoute", "Odd") + `, namespace: OTHER_NAMESPACE}], to: [{group: ` + o.one(`""`, "core", "a") + `, kind: Service` + o.one("", ", name: odd-1") + `}]}}`
}
