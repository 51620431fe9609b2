package main

import (
	"context"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/kubetest"
	"github.com/dynxds/dynxds/testutils"
)

// While the API server, or etcd, is gone, clients are served; afterwards changes arrive, also such as were made by another
// API server in between. The Gateway API's CRDs are not installed: it works without.
func TestOutages(t *testing.T) {
	t.Parallel()
	own, err := kubetest.Start(binaries)
	xdstest.NoError(t, err)
	t.Cleanup(own.Stop)
	k, pods := newKubeIn(t, own), &pods{}
	server := k.serving()
	a, b, conn, l := k.loaded(t, pods, server)

	own.KillAPIServer()
	late := pods.client(t, server, "xds:///greeter."+k.namespace+":8080")
	awaitIDs(t, late, "a") // new clients are served from what is known
	xdstest.NoError(t, own.StartAPIServer())
	k.changeSlice("greeter-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = []discoveryv1.Endpoint{ready(b)} })
	awaitIDs(t, conn, "b")

	own.KillEtcd()
	awaitIDs(t, late, "b")
	xdstest.NoError(t, own.StartEtcd())
	cmdtest.Await(t, func() string {
		ctx, cancel := context.WithTimeout(testutils.Context(t), 5*time.Second)
		defer cancel()
		s, err := k.client.DiscoveryV1().EndpointSlices(k.namespace).Get(ctx, "greeter-1", metav1.GetOptions{})
		if err == nil {
			s.Endpoints = []discoveryv1.Endpoint{ready(a), ready(b)}
			_, err = k.client.DiscoveryV1().EndpointSlices(k.namespace).Update(ctx, s, metav1.UpdateOptions{})
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
	awaitIDs(t, conn, "a", "b")
	l.Stop(t)
}
