package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
)

// The conditions of a route that is served, of one with some rules that are not, and of one without any that is.
var (
	served    = []string{"Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs"}
	partly    = []string{"Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs", "PartiallyInvalid=True/UnsupportedValue"}
	notServed = []string{"Accepted=False/UnsupportedValue", "ResolvedRefs=True/ResolvedRefs"}
	otherKind = []string{"Accepted=True/Accepted", "ResolvedRefs=False/InvalidKind"}
)

// What a route has that is not supported fails the requests that it is for. No such request goes to the Service around the route,
// which has an endpoint, and others are not affected.
func TestUnsupportedInRoutes(t *testing.T) {
	t.Parallel()
	server := newKube(t).serving()
	const (
		two      = `matches: [{headers: [{name: version, value: two}]}], `
		rest     = `, {backendRefs: [{name: canary, port: 8080}]}`
		imported = `{group: multicluster.x-k8s.io, kind: ServiceImport, name: canary, port: 8080}`
		custom   = `filters: [{type: ExtensionRef, extensionRef: {group: example.com, kind: Auth, name: a}}], `
		auth     = `filters: [{type: ExternalAuth, externalAuth: {protocol: GRPC, grpc: {}, backendRef: {name: canary, port: 8080}}}], `
		mirror   = `filters: [{type: RequestMirror, requestMirror: {backendRef: {name: canary, port: 8080}}}]`
		canary   = `backendRefs: [{name: canary, port: 8080}]`
	)
	broken := strings.Replace(two, "value: two", `type: RegularExpression, value: "("`, 1)
	unavailable, refused := codes.Unavailable.String(), codes.Unimplemented.String()
	for _, test := range []struct {
		name, kinds, rules string
		// ofTwo and others are who answers RPCs with the header of the first rule, and all others.
		ofTwo, others string
		want          []string
	}{
		{"a backend of another kind", "GH", `{` + two + `backendRefs: [` + imported + `]}` + rest, unavailable, "canary", otherKind},
		{"a backend of another kind alone", "GH", `{backendRefs: [` + imported + `]}`, unavailable, unavailable, otherKind},
		{"a mirror of another kind", "GH", `{filters: [{type: RequestMirror, requestMirror: {backendRef: ` + imported + `}}], ` + canary + `}`, "canary", "canary", otherKind},
		{"a custom filter", "GH", `{` + two + custom + canary + `}` + rest, unavailable, "canary", partly},
		{"a custom filter alone", "GH", `{` + custom + canary + `}`, unavailable, unavailable, notServed},
		{"authorization", "H", `{` + two + auth + canary + `}` + rest, unavailable, "canary", partly},
		{"a mirror of one backend", "GH", `{` + two + `backendRefs: [{name: canary, port: 8080, ` + mirror + `}]}` + rest, unavailable, "canary", partly},
		{"a match that nobody can read", "GH", `{` + broken + custom + canary + `}` + rest, "canary", "canary", partly},
		{"a match that nobody can read alone", "GH", `{` + broken + canary + `}`, refused, refused, notServed},
		{"one of two matches", "GH", `{` + strings.Replace(broken, "}]}]", `}]}, {headers: [{name: version, value: two}]}]`, 1) + canary + `}` + rest, unavailable, "canary", partly},
		{"all weights 0", "GH", `{` + two + `backendRefs: [{name: canary, port: 8080, weight: 0}]}` + rest, unavailable, "canary", served},
		{"all weights 0", "M", `{` + two + `backendRefs: [{kind: MeshService, name: canary, weight: 0}]}`, unavailable, "greeter", served},
		{"a prefix of an exact path", "M", `{matches: [{headers: [{name: version, value: two}], path: {type: Exact, value: ` + echoMethod + `}}], filters: [{urlRewrite: {path: {replacePrefixMatch: /x}}}]},
			{backendRefs: [{kind: MeshService, name: canary}]}`, unavailable, "canary", partly},
		{"the same rule twice", "M", `{` + two + `backendRefs: [{kind: MeshService, name: canary}]}, {` + two + `backendRefs: [{kind: MeshService, name: greeter}]}`, "canary", "greeter", partly},
	} {
		for _, kind := range []string{"GRPCRoute", "HTTPRoute", "MeshHTTPRoute"} {
			if !strings.Contains(test.kinds, kind[:1]) {
				continue
			}
			xdstest.Parallel(t, kind+" with "+test.name, func(t *testing.T) {
				k, pods := newKube(t), &pods{}
				k.echo(pods, "greeter", 8080)
				k.echo(pods, "canary", 8080)
				if kind == "MeshHTTPRoute" {
					k.object(policy("odd", toService("greeter", test.rules)))
					for _, condition := range test.want {
						k.awaitPolicy("odd", condition)
					}
				} else {
					k.object(odd(kind, test.rules))
					k.awaitConditionsOf(map[string]schema.GroupVersionResource{"GRPCRoute": cluster.GRPCRoutes, "HTTPRoute": cluster.HTTPRoutes}[kind], "odd", test.want...)
				}
				conn := pods.client(t, server, "xds:///greeter."+k.namespace)
				awaitInvoke(t, conn, echoMethod, map[string]string{"version": "two"}, test.ofTwo)
				awaitInvoke(t, conn, echoMethod, nil, test.others)
			})
		}
	}
}

// odd is a route with rules.
func odd(kind, rules string) string {
	return `{apiVersion: gateway.networking.k8s.io/v1, kind: ` + kind + `, metadata: {name: odd}, spec: {
		parentRefs: [{group: "", kind: Service, name: greeter}], rules: [` + rules + `]}}`
}

// A backend of another kind fails its share of the requests, and no more.
func TestShareOfUnknownKind(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	server := k.serving()
	k.echo(pods, "greeter", 8080)
	k.object(odd("GRPCRoute", `{backendRefs: [{name: greeter, port: 8080}, {kind: ConfigMap, name: greeter, weight: 3}]}`))
	k.awaitConditions("odd", otherKind...)
	conn := pods.client(t, server, "xds:///greeter."+k.namespace)
	shares(t, conn, map[string]int{"greeter": 100, codes.Unavailable.String(): 300})
}

// shares makes as many RPCs as the sum, and awaits that their outcomes are about as many as wanted.
func shares(t *testing.T, conn *grpc.ClientConn, want map[string]int) {
	t.Helper()
	outcomes := slices.Sorted(maps.Keys(want))
	cmdtest.Await(t, func() string {
		got := map[string]int{}
		total := 0
		for _, n := range want {
			total += n
		}
		for range total {
			got[invoke(t, conn, echoMethod, nil)]++
		}
		for _, outcome := range outcomes {
			if d := got[outcome] - want[outcome]; d < -total/8 || d > total/8 {
				return fmt.Sprintf("the outcomes are %v, want about %v", got, want)
			}
		}
		return ""
	})
}
