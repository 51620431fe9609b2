package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/dynxds/dynxds/internal/loopback"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/kubetest"
)

// Whatever objects the API server accepts in one namespace, RPCs to a Service of another one succeed, changes of its endpoints
// arrive, and a server that starts serves it. What is left out is an event of its Service, and counted.
func TestOddObjects(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	theirs := k.in(k.addNamespace())
	at, err := loopback.Reserve()
	xdstest.NoError(t, err)
	t.Cleanup(at.Release)
	server := k.serving(func(f *flags) {
		f.opts.Serve.MetricsAddress, f.namespaces = at.String(), []string{k.namespace, theirs.namespace}
		f.leaseNamespace = k.namespace
	})
	a, b, conn, l := k.loaded(t, pods, server)

	theirs.service("odd", "8080")
	for _, port := range []int32{0, 70000, -1} {
		theirs.slice(fmt.Sprint("port-", port), "odd", "", port, ready("10.0.0.1"))
	}
	theirs.awaitEvent("odd", "LeftOut", "Warning Service the endpoints of EndpointSlice port-")
	cmdtest.Await(t, func() string {
		status, body := cmdtest.GetAs(t, "http://"+at.String()+"/metrics", "")
		if status != http.StatusOK || !strings.Contains(body, "dynxds_controlplane_left_out 3") {
			return "the metric is not 3"
		}
		return ""
	})
	odd := kubetest.Odd(rand.New(rand.NewPCG(1, 2)), theirs.namespace, "greeter."+k.namespace)
	accepted := 0
	for i := range 20 {
		for range 5 {
			object, err := odd()
			xdstest.NoError(t, err)
			if theirs.tryToApply(object) == nil { // the API server refuses some
				accepted++
			}
		}
		want := []string{"a", "b"}[i%2]
		k.changeSlice("greeter-1", func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = []discoveryv1.Endpoint{ready(map[string]string{"a": a, "b": b}[want])}
		})
		awaitIDs(t, conn, want)
	}
	l.Stop(t)
	if accepted < 30 {
		t.Errorf("the API server accepts %d of 100 objects", accepted)
	}
	again := k.serving(func(f *flags) { f.namespaces = []string{k.namespace, theirs.namespace} })
	awaitIDs(t, pods.client(t, again, "xds:///greeter."+k.namespace), "b")
}
