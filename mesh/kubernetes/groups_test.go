package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/testutils"
)

// older waits until what is made from now on is younger than an object: the API server's times are in seconds.
func (k *kube) older(resource schema.GroupVersionResource, name string) {
	k.t.Helper()
	object, err := k.dynamic().Resource(resource).Namespace(k.namespace).Get(testutils.Context(k.t), name, metav1.GetOptions{})
	xdstest.NoError(k.t, err)
	cmdtest.Await(k.t, func() string {
		if time.Now().Unix() <= object.GetCreationTimestamp().Unix() {
			return "the second of " + name + " is not over"
		}
		return ""
	})
}

// rulesOf is a GRPCRoute with rules.
func rulesOf(name, parentNamespace, rules string) string {
	text := route(name, parentNamespace, "greeter", "")
	return strings.Replace(text, "rules: [{backendRefs: []}]", "rules: ["+rules+"]", 1)
}

// GRPCRouteRule.matches (apis/v1): "If ties still exist across multiple Routes, matching precedence MUST be determined in order of
// the following criteria: The oldest Route based on creation timestamp". Its rule counts as a whole: no field of the younger one.
func TestTheOldestRouteWinsWhole(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	server := k.serving()
	for _, name := range []string{"greeter", "young"} {
		k.echo(pods, name, 8080)
	}
	const exact = "matches: [{method: {service: a.B, method: C}}]"
	k.object(rulesOf("z-old", "NS", "{"+exact+", filters: [{type: RequestHeaderModifier, requestHeaderModifier: {remove: [x]}}]}"))
	k.older(cluster.GRPCRoutes, "z-old")
	k.object(rulesOf("a-young", "NS", "{"+exact+", backendRefs: [{name: young, port: 8080}]}, {matches: [{method: {service: a.B, method: D}}], backendRefs: [{name: young, port: 8080}]}"))
	conn := pods.client(t, server, "xds:///greeter."+k.namespace)
	awaitInvoke(t, conn, "/a.B/D", nil, "young")
	xdstest.Equal(t, "outcome where the older route has a rule without backends", codes.Unavailable.String(), invoke(t, conn, "/a.B/C", nil))
	routes := k.dynamic().Resource(cluster.GRPCRoutes).Namespace(k.namespace)
	xdstest.NoError(t, routes.Delete(testutils.Context(t), "z-old", metav1.DeleteOptions{}))
	awaitInvoke(t, conn, "/a.B/C", nil, "young")
}

// GEP-1294, "Multiple routes for a Service": "Requests from a namespace with consumer routes will utilize the (possibly merged) set of
// routes in the consumer namespace. Requests from other namespaces will utilize the (possibly merged) set of routes in the producer
// namespace."
func TestConsumerRoutesReplaceProducerRoutes(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	consumer := k.in(k.addNamespace())
	server := k.serving()
	for _, name := range []string{"greeter", "stable"} {
		k.echo(pods, name, 8080)
	}
	consumer.echo(pods, "canary", 8080)
	k.object(rulesOf("producer", "NS", "{matches: [{method: {service: a.B, method: C}}], backendRefs: [{name: stable, port: 8080}]}"))
	target := "xds:///greeter." + k.namespace
	inside, outside := pods.client(t, server, target, in(consumer.namespace)), pods.client(t, server, target, in(k.namespace))
	awaitInvoke(t, inside, "/a.B/C", nil, "stable")
	consumer.object(rulesOf("consumer", k.namespace, "{matches: [{method: {service: a.B, method: D}}], backendRefs: [{name: canary, port: 8080}]}"))
	awaitInvoke(t, inside, "/a.B/D", nil, "canary")
	xdstest.Equal(t, "outcome where only the producer has a rule", codes.Unimplemented.String(), invoke(t, inside, "/a.B/C", nil))
	xdstest.Equal(t, "who answers others", "stable", invoke(t, outside, "/a.B/C", nil))
	xdstest.Equal(t, "outcome for others where only the consumer has a rule", codes.Unimplemented.String(), invoke(t, outside, "/a.B/D", nil))
	routes := consumer.dynamic().Resource(cluster.GRPCRoutes).Namespace(consumer.namespace)
	xdstest.NoError(t, routes.Delete(testutils.Context(t), "consumer", metav1.DeleteOptions{}))
	awaitInvoke(t, inside, "/a.B/C", nil, "stable")
}

// GEP-1294, "Route types": "If multiple routes with different types both bind to the same Service and Port pair, only a single route
// type should be applied. The rejected routes should be ignored and have the RouteConditionAccepted status set to the (new) reason
// RouteReasonConflicted."
func TestRouteTypes(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	server := k.serving()
	k.service("greeter", "a:8080", "b:9090")
	for _, name := range []string{"http", "grpc"} {
		k.echo(pods, name, 8080)
	}
	httpRoute := func(name, port string) string {
		return fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: %s}, spec: {
			parentRefs: [{group: "", kind: Service, name: greeter%s}], rules: [{backendRefs: [{name: http, port: 8080}]}]}}`, name, port)
	}
	k.object(httpRoute("both", ""))
	k.object(httpRoute("a", ", port: 8080"))
	a, b := pods.client(t, server, "xds:///greeter."+k.namespace+":a"), pods.client(t, server, "xds:///greeter."+k.namespace+":b")
	awaitInvoke(t, a, echoMethod, nil, "http")
	awaitInvoke(t, b, echoMethod, nil, "http")
	k.object(strings.Replace(route("grpc", "NS", "greeter", "{name: grpc, port: 8080}"), "name: greeter}", "name: greeter, port: 8080}", 1))
	awaitInvoke(t, a, echoMethod, nil, "grpc")
	xdstest.Equal(t, "who answers at the other port", "http", invoke(t, b, echoMethod, nil))
	k.awaitConditionsOf(cluster.HTTPRoutes, "a", "Accepted=False/Conflicted", "ResolvedRefs=True/ResolvedRefs")
	k.awaitConditionsOf(cluster.HTTPRoutes, "both", "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
	k.awaitConditions("grpc", "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
}
