package folder

import "testing"

// Whatever is in a file, reading it ends in content, or in errors that name the file.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		"kind: [", "{}", "---\n---\n", "kind: Service\nname: a\n---\nkind: Service\nname: a\n",
		"kind: Service\nname: a\nendpoints: [{address: 'a:1', tags: {b: c}, locality: {zone: d}, weight: 2, health: Draining}]",
		"kind: Service\nname: a\nfilters: [{name: router, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]",
		"kind: Resource\ndynamicParameters: {env: prod}\nresource: {'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: a}",
		"kind: MeshHTTPRoute\nname: a\nspec: {to: [{targetRef: {kind: Mesh}, rules: [{matches: [{path: {prefix: /a}}]}]}]}",
		`{"kind": "Service", "name": "a"}`,
		"kind: Service\nname: a\nloadBalancing: {policy: RingHash, hashOn: [{header: b}]}\noutlierDetection: {interval: 5s}\ncircuitBreakers: {maxRequests: 1}\nretry: {on: [internal], backoff: {base: 1s}}\ntimeout: 1s",
		"apiVersion: gateway.networking.k8s.io/v1\nkind: GRPCRoute\nmetadata: {name: a}\nspec: {parentRefs: [{kind: Service, name: b}], rules: [{matches: [{method: {service: c}}], backendRefs: [{name: d, weight: 1}]}]}",
		"apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: a}\nspec: {parentRefs: [{kind: Service, name: b}], rules: [{filters: [{type: RequestMirror, requestMirror: {fraction: {numerator: 1, denominator: 3}, backendRef: {name: c}}}]}]}",
		"kind: Service\nname: a\nloadBalancing: {policy: Maglev, tableSize: 11, subsetSize: 2}\nlocalities: [{zone: a, weight: 2}]\nsessionAffinity: {cookie: {name: \"b\", path: /, ttl: 1s}}\nhealthCheck: {service: c}\nloadReporting: true\nretry: {on: [reset], perTryTimeout: 1s}",
		"kind: Service\nname: a\nloadBalancing: {policy: LeastRequest, slowStart: {window: 1s, aggression: 2}}\nsessionAffinity: {header: b, statuses: [Draining]}\ncircuitBreakers: {retryBudget: {percent: 3}}",
		"apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: a}\nspec: {parentRefs: [{kind: Service, name: b}], rules: [{timeouts: {request: 1s}, retry: {codes: [500], attempts: 2}, sessionPersistence: {type: Cookie}}]}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Parser
		c, err := p.Parse(map[string]string{"a.yaml": string(data)})
		if (c == nil) == (err == nil) {
			t.Fatalf("got content %v and error %v", c, err)
		}
		for _, fault := range p.files["a.yaml"].faults.List {
			if fault.File != "a.yaml" || fault.Problem == "" {
				t.Errorf("the fault %+v does not say where it is, or what", fault)
			}
		}
	})
}
