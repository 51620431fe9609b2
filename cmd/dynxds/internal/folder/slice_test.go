package folder_test

import (
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// sliceList is what kubectl get endpointslices -o yaml prints, shortened.
const sliceList = `
apiVersion: v1
kind: List
metadata:
  resourceVersion: ""
items:
- addressType: IPv4
  apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata:
    annotations: {endpoints.kubernetes.io/last-change-trigger-time: "2026-11-22T07:00:00Z"}
    creationTimestamp: "2026-11-22T07:00:00Z"
    generateName: backend-
    generation: 4
    labels:
      endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io
      kubernetes.io/service-name: backend
    name: backend-b
    namespace: default
    ownerReferences: [{apiVersion: v1, kind: Service, name: backend}]
    resourceVersion: "4711"
    uid: 1c2d
  endpoints:
  - addresses: [10.0.0.3]
    conditions: {ready: true, serving: true, terminating: false}
    nodeName: one
    targetRef: {kind: Pod, name: backend-3, namespace: default, uid: 3}
    zone: eu-1a
    hints: {forZones: [{name: eu-1a}]}
  - addresses: [10.0.0.1]
    conditions: {ready: false, serving: true, terminating: true}
    zone: eu-1b
  - addresses: [10.0.0.2]
    conditions: {ready: false, serving: false, terminating: true}
  - addresses: [10.0.0.4]
    conditions: {ready: false, serving: true, terminating: false}
  ports:
  - {name: admin, port: 9090, protocol: TCP}
  - {name: grpc, port: 8080, protocol: TCP}
- addressType: IPv4
  apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: backend-a, namespace: default, labels: {kubernetes.io/service-name: backend}}
  endpoints:
  - addresses: [10.0.0.5, 10.0.0.6]
    conditions: {}
  - addresses: [10.0.0.3]
    conditions: {ready: false}
  ports:
  - {name: api, port: 8081, appProtocol: kubernetes.io/h2c}
- addressType: IPv6
  apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: backend-six, namespace: default, labels: {kubernetes.io/service-name: backend}}
  endpoints: [{addresses: ["2001:db8::1"]}]
  ports: [{name: grpc, port: 8080}]
- addressType: IPv6
  apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: six, namespace: shop, labels: {kubernetes.io/service-name: six}}
  endpoints: [{addresses: ["2001:db8::1"]}]
  ports: [{name: "", port: 8080, protocol: TCP}, {name: dns, port: 53, protocol: UDP}]
- addressType: IPv4
  apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: nobody-a, namespace: default, labels: {kubernetes.io/service-name: nobody}}
  endpoints: null
  ports: null
`

func endpointsOf(c *folder.Content) map[string][]meshroute.Endpoint {
	all := make(map[string][]meshroute.Endpoint)
	for _, s := range c.Services {
		all[s.Name] = s.Endpoints
	}
	return all
}

// EndpointSlice, discovery.k8s.io/v1: the conditions are the health, the zone is the locality, several
// slices make one service, an endpoint in two of them is one. Of a dual-stack service the IPv4 addresses
// are taken.
func TestEndpointSlicesAreServices(t *testing.T) {
	t.Parallel()
	d := newDir(t, "slices.yaml", sliceList)
	want := map[string][]meshroute.Endpoint{
		"backend": {
			{Address: "10.0.0.1:8080", Health: corepb.HealthStatus_DRAINING, Locality: meshroute.Locality{Zone: "eu-1b"}},
			{Address: "10.0.0.2:8080", Health: corepb.HealthStatus_UNHEALTHY},
			{Address: "10.0.0.3:8080", Locality: meshroute.Locality{Zone: "eu-1a"}},
			{Address: "10.0.0.3:8081", Health: corepb.HealthStatus_UNHEALTHY},
			{Address: "10.0.0.4:8080", Health: corepb.HealthStatus_UNHEALTHY},
			{Address: "10.0.0.5:8081"},
		},
		"six.shop": {{Address: "[2001:db8::1]:8080"}},
		"nobody":   nil,
	}
	got := endpointsOf(d.content())
	xdstest.Equal(t, "endpoints", want, got, cmpopts.IgnoreFields(meshroute.Endpoint{}, "Source"))
	if line := got["backend"][2].Source.Line; line != 24 {
		t.Errorf("the endpoint is on line %d, want 24", line)
	}
}

const oneSlice = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: NAME, labels: {kubernetes.io/service-name: backend}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1], conditions: READY}]
ports: [{name: http, port: 80}, {name: other, port: 81}]
`

func slice(name, conditions string) string {
	return strings.NewReplacer("NAME", name, "READY", conditions).Replace(oneSlice)
}

// An endpoint that is in two slices has the better health of the two: it was moved from one to the other.
func TestAnEndpointInTwoSlices(t *testing.T) {
	t.Parallel()
	for _, conditions := range [][2]string{{"{ready: false}", "{ready: true}"}, {"{ready: true}", "{ready: false}"}} {
		d := newDir(t)
		d.write("a.yaml", "kind: Service\nname: backend\nport: other\n---"+slice("a", conditions[0])+"---"+slice("b", conditions[1]))
		got := endpointsOf(d.content())["backend"]
		if len(got) != 1 || got[0].Health != corepb.HealthStatus_UNKNOWN || got[0].Address != "10.0.0.1:81" {
			t.Errorf("of slices with %v the endpoints are %v", conditions, got)
		}
	}
}

// A Service document says more about a service of slices: the port by name or number, tls and filters, and
// endpoints of its own.
func TestAServiceWithSlices(t *testing.T) {
	t.Parallel()
	for port, want := range map[string]string{"http": "10.0.0.1:80", "81": "10.0.0.1:81"} {
		d := newDir(t)
		d.write("service.yaml", "kind: Service\nname: backend\nport: "+port+"\nendpoints: [{address: '10.0.0.9:1', weight: 2}]\ntls: {mode: 'off'}\n")
		d.write("slices.yaml", slice("a", "{}"))
		c := d.content()
		s := c.Services[0]
		if len(c.Services) != 1 || s.TLS == nil || len(s.Endpoints) != 2 || s.Endpoints[0].Address != "10.0.0.9:1" || s.Endpoints[1].Address != want {
			t.Errorf("with port %s the service is %+v, want the endpoint %s", port, s, want)
		}
	}
}

// A service whose documents did not change is the same value, so that nothing is built for it.
func TestOnlyChangedSlicesMakeNewServices(t *testing.T) {
	t.Parallel()
	d := newDir(t, "slices.yaml", sliceList, "service.yaml", "kind: Service\nname: backend\ntls: {mode: 'off'}\n")
	r := folder.New(d.path)
	before := read(t, r)
	d.write("more.yaml", frontend)
	d.write("six.yaml", strings.NewReplacer("name: NAME", "name: x, namespace: shop", "service-name: backend", "service-name: six", ", {name: other, port: 81}", "", "READY", "{}").Replace(oneSlice))
	after := read(t, r)
	same := make(map[string]bool)
	for _, old := range before.Services {
		for _, s := range after.Services {
			if s.Name == old.Name {
				same[s.Name] = s == old
			}
		}
	}
	xdstest.Equal(t, "services that stay", map[string]bool{"backend": true, "nobody": true, "six.shop": false}, same)
}

func TestFaultyEndpointSlices(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{slice("a", "{}"), `a.yaml:2: EndpointSlice a has the ports "http", "other", and it is unclear which is for gRPC; add a document {kind: Service, name: backend, port: …}`},
		{slice("a", "{}") + "---\nkind: Service\nname: backend\nport: grpc\n", `a.yaml:2: EndpointSlice a has no port "grpc", which service backend uses; it has "http", "other"`},
		{"kind: Service\nname: backend\nport: grpc\n", `a.yaml:1: the service has a port, which selects one of EndpointSlices, and none; leave out port`},
		{strings.Replace(slice("a", "{}"), "ports: [{name: http, port: 80}, {name: other, port: 81}]", "ports: []", 1), `EndpointSlice a has endpoints, and no TCP port`},
		{slice("a", "{}") + "---" + slice("a", "{}"), `duplicate EndpointSlice a; the first is at`},
		{slice("a", "{redy: true}"), `a.yaml:6: endpoints[0].conditions: unknown field "redy"; did you mean "ready"?`},
		{slice("a", "{ready: maybe}"), `endpoints[0].conditions.ready: expected true or false`},
		{strings.Replace(slice("a", "{}"), "[10.0.0.1]", "['10.0.0.1:80']", 1), `a.yaml:6: endpoints[0].addresses[0]: "10.0.0.1:80" is neither an IP address nor a host name`},
		{strings.Replace(slice("a", "{}"), "[10.0.0.1]", "['']", 1), `a.yaml:6: endpoints[0].addresses[0]: "" is neither an IP address nor a host name`},
		{strings.Replace(slice("a", "{}"), "[10.0.0.1]", "[]", 1), `endpoints[0]: an endpoint needs at least one address`},
		{strings.Replace(slice("a", "{}"), ", labels: {kubernetes.io/service-name: backend}", "", 1), `metadata: the slice has no label kubernetes.io/service-name, so it belongs to no service`},
		{"kind: List\nitems: [{kind: List, items: []}]", `a.yaml:2: items[0].kind: a list is in a list`},
		{"kind: List\n", `a.yaml:1: the field "items" is missing`},
		{"kind: List\nitems:\n- kind: Servic\n", `a.yaml:3: items[0].kind: unknown value "Servic"; did you mean "Service"?`},
	} {
		newDir(t, "a.yaml", test.text).rejected(test.text, test.want)
	}
}
