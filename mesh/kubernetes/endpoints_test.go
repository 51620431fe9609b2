package main

import (
	"fmt"
	"testing"
	"time"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/testutils"
)

var yes, no = true, false

// terminating is an endpoint that serves and is about to end.
func terminating(ip string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}}
}

// New RPCs avoid pods that are terminating or not ready; streams on the former go on. Without others they are used.
func TestConditions(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	server := k.serving()
	k.service("greeter", "8080")
	a, _ := pods.start(t, "a")
	b, backendB := pods.start(t, "b")
	c, _ := pods.start(t, "c")
	notReady := ready(c)
	notReady.Conditions.Ready = &no
	k.slice("greeter-1", "greeter", "", 8080, ready(a), ready(b), notReady)
	conn := pods.client(t, server, "xds:///greeter."+k.namespace)
	awaitIDs(t, conn, "a", "b")

	// A stream on each; then b is terminating.
	var streams []testgrpc.TestService_FullDuplexCallClient
	for range 20 {
		stream, err := testgrpc.NewTestServiceClient(conn).FullDuplexCall(testutils.Context(t))
		xdstest.NoError(t, err)
		exchange(t, stream)
		streams = append(streams, stream)
	}
	xdstest.NoError(t, backendB.Wait(testutils.Context(t), 1))
	k.changeSlice("greeter-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = []discoveryv1.Endpoint{ready(a), terminating(b)} })
	awaitIDs(t, conn, "a")
	for _, stream := range streams {
		exchange(t, stream)
	}
	k.changeSlice("greeter-1", func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = []discoveryv1.Endpoint{terminating(a), terminating(b)}
	})
	awaitIDs(t, conn, "a", "b")
	k.changeSlice("greeter-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = []discoveryv1.Endpoint{ready(c)} })
	awaitIDs(t, conn, "c")
}

// exchange sends a message on a stream and gets one.
func exchange(t testing.TB, stream testgrpc.TestService_FullDuplexCallClient) {
	t.Helper()
	xdstest.NoError(t, stream.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}}}))
	_, err := stream.Recv()
	xdstest.NoError(t, err)
}

// hinted is an endpoint in a zone that is for clients of zones, and perhaps of a node.
func hinted(ip, zone string, zones []string, nodes ...string) discoveryv1.Endpoint {
	e := ready(ip)
	e.Zone = &zone
	e.Hints = &discoveryv1.EndpointHints{}
	for _, zone := range zones {
		e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: zone})
	}
	for _, node := range nodes {
		e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: node})
	}
	return e
}

// Clients use the endpoints for their node, then those for their zone, then all; by dynamic parameters and by the server's choice.
func TestHints(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	server := k.serving(func(f *flags) { f.opts.Authority = "mesh" })
	k.service("greeter", "8080")
	a1, backendA1 := pods.start(t, "a1")
	a2, backendA2 := pods.start(t, "a2")
	b, _ := pods.start(t, "b")
	k.slice("greeter-1", "greeter", "", 8080,
		hinted(a1, "a", []string{"a"}, "node-a1"), hinted(a2, "a", []string{"a"}, "node-a2"), hinted(b, "b", []string{"b"}, "node-b"))
	for _, test := range []struct {
		name     string
		metadata map[string]any
		want     []string
	}{
		{"node", map[string]any{"zone": "a", "node": "node-a1"}, []string{"a1"}},
		{"zone", map[string]any{"zone": "a", "node": "node-without"}, []string{"a1", "a2"}},
		{"another zone", map[string]any{"zone": "b"}, []string{"b"}},
		{"zone without endpoints", map[string]any{"zone": "c"}, []string{"a1", "a2", "b"}},
		{"nowhere", map[string]any{}, []string{"a1", "a2", "b"}},
	} {
		metadata := testutils.NodeField("metadata", test.metadata)
		awaitIDs(t, pods.client(t, server, "xds:///greeter."+k.namespace, metadata), test.want...)
		awaitIDs(t, pods.client(t, server, "xds://mesh/greeter."+k.namespace, append(dpds(), metadata)...), test.want...)
	}
	onNode := pods.client(t, server, "xds:///greeter."+k.namespace, testutils.NodeField("metadata", map[string]any{"zone": "a", "node": "node-a1"}))
	awaitIDs(t, onNode, "a1")
	backendA1.Stop()
	awaitIDs(t, onNode, "a2")
	backendA2.Stop()
	awaitIDs(t, onNode, "b")
}

// An endpoint without a hint makes all hints count for nothing.
func TestHintsOfSome(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	server := k.serving()
	k.service("greeter", "8080")
	a, _ := pods.start(t, "a")
	b, _ := pods.start(t, "b")
	k.slice("greeter-1", "greeter", "", 8080, hinted(a, "a", []string{"a"}), ready(b))
	awaitIDs(t, pods.client(t, server, "xds:///greeter."+k.namespace, testutils.NodeField("metadata", map[string]any{"zone": "a"})), "a", "b")
}

// A pod with addresses of both IP families is one endpoint, that can be reached by either.
func TestDualStack(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	server := k.serving()
	both := corev1.IPFamilyPolicyPreferDualStack
	k.serviceWith("greeter", func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{{Port: 8080}}
		s.Spec.IPFamilyPolicy = &both
	})
	a, _ := pods.start(t, "a")
	b, backendB := pods.start(t, "b")
	const a6, b6 = "fd00:1::a", "fd00:1::b"
	pods.alias(a6, a)
	pods.alias(b6, b)
	of := func(ip, pod string) discoveryv1.Endpoint {
		e := ready(ip)
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: k.namespace, Name: pod, UID: types.UID("uid-" + pod)}
		return e
	}
	k.slice("greeter-4", "greeter", "", 8080, of("10.255.255.1", "a"), of(b, "b")) // nobody answers at the IPv4 address of a
	k.sliceWith("greeter-6", "greeter", func(s *discoveryv1.EndpointSlice) {
		port, name := int32(8080), ""
		s.AddressType, s.Ports = discoveryv1.AddressTypeIPv6, []discoveryv1.EndpointPort{{Name: &name, Port: &port}}
		s.Endpoints = []discoveryv1.Endpoint{of(a6, "a"), of(b6, "b")}
	})
	conn := pods.client(t, server, "xds:///greeter."+k.namespace)
	awaitIDs(t, conn, "a", "b")
	backendB.Stop()
	awaitIDs(t, conn, "a")
}

// Headless Services, and those without a selector, have endpoints like any other. They may be IPv6 alone.
func TestHeadless(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	server := k.serving()
	k.serviceWith("greeter", func(s *corev1.Service) {
		s.Spec.ClusterIP = corev1.ClusterIPNone
		s.Spec.Ports = []corev1.ServicePort{{Port: 8080}}
	})
	a, _ := pods.start(t, "a")
	const a6 = "fd00:2::a"
	pods.alias(a6, a)
	k.sliceWith("greeter-6", "greeter", func(s *discoveryv1.EndpointSlice) {
		port, name := int32(8080), ""
		s.AddressType, s.Ports = discoveryv1.AddressTypeIPv6, []discoveryv1.EndpointPort{{Name: &name, Port: &port}}
		s.Endpoints = []discoveryv1.Endpoint{ready(a6)}
	})
	awaitIDs(t, pods.client(t, server, "xds:///greeter."+k.namespace), "a")
}

// The name of an ExternalName is resolved by the client.
func TestExternalName(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	server := k.serving()
	backend := testutils.StartBackend(t, "outside")
	_, port, _ := splitHostPort(backend.Addr())
	k.serviceWith("greeter", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "localhost"
		s.Spec.Ports = []corev1.ServicePort{{Port: port}}
	})
	conn := cmdtest.DialXDS(t, "xds:///greeter."+k.namespace, testutils.Bootstrap("client", server))
	xdstest.Equal(t, "who answers", "outside", call(t, conn))
}

// While the controller moves an endpoint from one slice to another, no RPC fails, though for a moment no slice has it.
func TestMoveBetweenSlices(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	server := k.serving(func(f *flags) { f.moving = 3 * time.Second })
	k.service("greeter", "8080")
	a, _ := pods.start(t, "a")
	k.slice("greeter-1", "greeter", "", 8080, ready(a))
	k.slice("greeter-2", "greeter", "", 8080)
	conn := pods.client(t, server, "xds:///greeter."+k.namespace)
	call(t, conn)
	names := []string{"greeter-1", "greeter-2"}
	for i := range 10 {
		from, to := names[i%2], names[(i+1)%2]
		k.changeSlice(from, func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil })
		for range 5 {
			_, err := testgrpc.NewTestServiceClient(conn).UnaryCall(testutils.Context(t), &testgrpc.SimpleRequest{})
			xdstest.NoError(t, err)
		}
		k.changeSlice(to, func(s *discoveryv1.EndpointSlice) { s.Endpoints = []discoveryv1.Endpoint{ready(a)} })
	}
	// What does not come back is gone.
	k.changeSlice("greeter-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil })
	k.changeSlice("greeter-2", func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil })
	cmdtest.Await(t, func() string {
		if _, err := testgrpc.NewTestServiceClient(conn).UnaryCall(testutils.Context(t), &testgrpc.SimpleRequest{}); err == nil {
			return "an endpoint that no slice has is still used"
		}
		return ""
	})
}

// Clients keep a deleted Service for the removal delay, and use one that is made again.
func TestServiceMadeAgain(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	server := k.serving()
	a, _ := pods.start(t, "a")
	b, _ := pods.start(t, "b")
	k.service("greeter", "8080")
	k.service("other", "8080")
	k.slice("greeter-1", "greeter", "", 8080, ready(a))
	conn := pods.client(t, server, "xds:///greeter."+k.namespace)
	awaitIDs(t, conn, "a")
	ctx := testutils.Context(t)
	xdstest.NoError(t, k.client.CoreV1().Services(k.namespace).Delete(ctx, "greeter", metav1.DeleteOptions{}))
	xdstest.NoError(t, k.client.DiscoveryV1().EndpointSlices(k.namespace).Delete(ctx, "greeter-1", metav1.DeleteOptions{}))
	late := pods.client(t, server, fmt.Sprintf("xds:///greeter.%s:8080", k.namespace))
	cmdtest.Await(t, func() string {
		if _, err := testgrpc.NewTestServiceClient(late).UnaryCall(ctx, &testgrpc.SimpleRequest{}); err == nil {
			return "a new client still finds the Service"
		}
		return ""
	})
	k.service("greeter", "8080")
	k.slice("greeter-2", "greeter", "", 8080, ready(b))
	awaitIDs(t, conn, "b")
	awaitIDs(t, late, "b")
}
