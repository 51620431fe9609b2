package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/kubetest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/routestatus"
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
	l.end(t)
}

// The last Service of all namespaces that are read can be deleted: clients that dial it afterwards have none, as with any other
// Service, until it is made again.
func TestLastService(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	server := k.serving(func(f *flags) { f.namespaces = []string{k.namespace} })
	a, _ := pods.start(t, "a")
	k.service("greeter", "8080")
	k.slice("greeter-1", "greeter", "", 8080, ready(a))
	tries := 0
	// client is one that knows nothing of the others: a process that has the Service in use keeps it.
	client := func() *grpc.ClientConn {
		tries++
		return pods.client(t, server, "xds:///greeter."+k.namespace, testutils.NodeField("metadata", map[string]any{"try": tries}))
	}
	awaitIDs(t, client(), "a")
	xdstest.NoError(t, k.client.CoreV1().Services(k.namespace).Delete(testutils.Context(t), "greeter", metav1.DeleteOptions{}))
	cmdtest.Await(t, func() string {
		late := client()
		defer late.Close()
		_, err := testgrpc.NewTestServiceClient(late).UnaryCall(testutils.Context(t), &testgrpc.SimpleRequest{})
		if err == nil || !strings.Contains(err.Error(), "there is no service") {
			return fmt.Sprintf("a client of the Service that was deleted gets %v", err)
		}
		return ""
	})
	k.service("greeter", "8080")
	awaitIDs(t, client(), "a")
}

// When the replica that holds the Lease ends, another one writes status.
func TestLeadership(t *testing.T) {
	t.Parallel()
	k, pods := newKubeAlone(t), &pods{}
	lease := func(f *flags) { f.leaseNamespace, f.namespaces = k.namespace, []string{k.namespace} }
	k.echo(pods, "greeter", 8080)
	t.Run("first", func(t *testing.T) {
		first := *k
		first.t = t
		first.serving(lease)
		first.object(route("first", "NS", "greeter", "{name: greeter, port: 8080}"))
		first.awaitConditions("first", "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
	})
	// The first one has ended, and released the Lease.
	k.serving(lease)
	k.object(route("second", "NS", "greeter", "{name: greeter, port: 8080}"))
	k.awaitConditions("second", "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
	held, err := k.client.CoordinationV1().Leases(k.namespace).Get(testutils.Context(t), routestatus.LeaseName, metav1.GetOptions{})
	xdstest.NoError(t, err)
	if held.Spec.HolderIdentity == nil || *held.Spec.HolderIdentity == "" {
		t.Error("nobody holds the Lease")
	}
}
