package main

import (
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// A Service has a name for each port, and every form of name leads there.
func TestNames(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	server := k.serving()
	k.service("greeter", "metrics:9090", "grpc:8080")
	grpcIP, _ := pods.start(t, "grpc")
	metricsIP, _ := pods.start(t, "metrics")
	// The test tells ports apart by slices with different pods, which real slices do not have.
	k.slice("greeter-1", "greeter", "grpc", 50051, ready(grpcIP))
	k.slice("greeter-2", "greeter", "metrics", 9999, ready(metricsIP))
	for target, want := range map[string]string{
		"greeter.NS":                        "grpc", // the default is the port for gRPC, not the first one
		"greeter.NS:8080":                   "grpc",
		"greeter.NS:grpc":                   "grpc",
		"greeter.NS:9090":                   "metrics",
		"greeter.NS:metrics":                "metrics",
		"greeter.NS.svc.cluster.local":      "grpc",
		"greeter.NS.svc.cluster.local:9090": "metrics",
		"greeter.NS.svc.cluster.local:grpc": "grpc",
		"greeter":                           "grpc",
		"greeter:8080":                      "grpc",
		"greeter:metrics":                   "metrics",
	} {
		xdstest.Parallel(t, target, func(t *testing.T) {
			conn := pods.client(t, server, "xds:///"+strings.ReplaceAll(target, "NS", k.namespace), in(k.namespace))
			xdstest.Equal(t, "who answers", want, call(t, conn))
		})
	}
}

// A short name is that of the client's own namespace, with and without dynamic parameters.
func TestShortNames(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	other := k.in(k.addNamespace())
	server := k.serving(func(f *flags) { f.opts.Authority = "mesh" })
	for _, k := range []*kube{k, other} {
		k.service("greeter", "8080")
		ip, _ := pods.start(t, k.namespace)
		k.slice("greeter-1", "greeter", "", 8080, ready(ip))
	}
	for _, k := range []*kube{k, other} {
		xdstest.Parallel(t, k.namespace, func(t *testing.T) {
			xdstest.Equal(t, "who answers", k.namespace, call(t, pods.client(t, server, "xds:///greeter", in(k.namespace))))
			byDPDS := pods.client(t, server, "xds://mesh/greeter", append(dpds(), in(k.namespace))...)
			xdstest.Equal(t, "who answers a client with dynamic parameters", k.namespace, call(t, byDPDS))
		})
	}
}

// Pods may have different numbers for one name of a port: they are in slices of their own.
func TestNamedPortsThatDiffer(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	server := k.serving()
	k.service("greeter", "grpc:80")
	a, _ := pods.start(t, "a")
	b, _ := pods.start(t, "b")
	k.slice("greeter-1", "greeter", "grpc", 50051, ready(a))
	k.slice("greeter-2", "greeter", "grpc", 50052, ready(b))
	conn := pods.client(t, server, "xds:///greeter."+k.namespace+":80")
	awaitIDs(t, conn, "a", "b")
	k.changeSlice("greeter-2", func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil })
	awaitIDs(t, conn, "a")
}
