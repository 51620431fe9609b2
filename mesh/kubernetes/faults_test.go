package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dynxds/dynxds/internal/loopback"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/routestatus"
	"github.com/dynxds/dynxds/mesh/meshtest/load"
	"github.com/dynxds/dynxds/testutils"
)

// serveInProcess is set in the environment of a process that is the command, and not the tests.
const serveInProcess = "DYNXDS_KUBERNETES_TEST_SERVES"

// process runs the command in a process of its own, which kill ends as a crash does.
func (k *kube) process(args ...string) (address string, pid int, kill func()) {
	k.t.Helper()
	path := filepath.Join(k.t.TempDir(), "kubeconfig")
	xdstest.NoError(k.t, k.cluster.Kubeconfig(path, k.cluster.AdminToken()))
	at, err := loopback.Reserve()
	xdstest.NoError(k.t, err)
	k.t.Cleanup(at.Release)
	args = append([]string{"serve", "--kubeconfig", path, "--listen", at.String(), "--anonymous"}, args...)
	command := exec.Command(os.Args[0], args...)
	command.Env = append(os.Environ(), serveInProcess+"=1")
	command.Stdout, command.Stderr = k.t.Output(), k.t.Output()
	xdstest.NoError(k.t, command.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait()
	}()
	kill = func() {
		_ = command.Process.Kill()
		<-ended
	}
	k.t.Cleanup(kill)
	return at.String(), command.Process.Pid, kill
}

// The replica that holds the Lease is killed: clients use the other one, no RPC fails, and once the Lease has run out the other one
// writes status.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	k, pods := newKubeAlone(t), &pods{}
	k.echo(pods, "greeter", 8080)
	leader, _, kill := k.process("--lease-namespace", k.namespace, "--namespace", k.namespace, "--lease-duration", "8s") // a busy machine renews it in time
	k.object(route("first", "NS", "greeter", "{name: greeter, port: 8080}"))
	k.awaitConditions("first", "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
	other := k.serving(func(f *flags) { f.leaseNamespace, f.namespaces = k.namespace, []string{k.namespace} })

	creds := []any{map[string]any{"type": "insecure"}}
	conn := pods.client(t, leader, "xds:///greeter."+k.namespace, testutils.TopLevel("xds_servers", []any{
		map[string]any{"server_uri": leader, "channel_creds": creds}, map[string]any{"server_uri": other, "channel_creds": creds},
	}))
	awaitInvoke(t, conn, echoMethod, nil, "greeter")
	l := load.Start(t, conn)
	before, err := k.client.CoordinationV1().Leases(k.namespace).Get(testutils.Context(t), routestatus.LeaseName, metav1.GetOptions{})
	xdstest.NoError(t, err)
	kill()
	k.object(route("second", "NS", "greeter", "{name: greeter, port: 8080}"))
	k.awaitConditions("second", "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
	after, err := k.client.CoordinationV1().Leases(k.namespace).Get(testutils.Context(t), routestatus.LeaseName, metav1.GetOptions{})
	xdstest.NoError(t, err)
	if *before.Spec.HolderIdentity == "" || *after.Spec.HolderIdentity == *before.Spec.HolderIdentity {
		t.Errorf("the Lease was that of %q, and is that of %q", *before.Spec.HolderIdentity, *after.Spec.HolderIdentity)
	}
	// Nobody has released it, as an orderly end does.
	if held := after.Spec.AcquireTime.Sub(before.Spec.RenewTime.Time); held < 8*time.Second {
		t.Errorf("the Lease passed on %s after it was renewed", held)
	}
	l.Stop(t)
}

// A watch that ends as the API server does not know the revision any more (410 Gone) makes the server list again. It misses nothing,
// and is not an outage.
func TestWatchGone(t *testing.T) {
	t.Parallel()
	for name, answer := range gone {
		xdstest.Parallel(t, name, func(t *testing.T) {
			k, pods := newKube(t), &pods{}
			proxy := newAPIProxy(t, k.cluster, "endpointslices")
			k.log = &xdstest.Log{}
			server := k.serving(proxy.use)
			a, b, conn, l := k.loaded(t, pods, server)
			asked, changed := make(chan struct{}, 1), make(chan struct{})
			proxy.set(func(w http.ResponseWriter, r *http.Request) bool {
				if !resumes(r) {
					return false
				}
				select {
				case asked <- struct{}{}:
				default:
				}
				<-changed
				answer(w)
				return true
			})
			select {
			case <-asked:
			case <-testutils.Context(t).Done():
				t.Fatal("the server does not watch again")
			}
			// No watch tells of this.
			k.changeSlice("greeter-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = []discoveryv1.Endpoint{ready(b)} })
			close(changed)
			awaitIDs(t, conn, "b")
			proxy.set(nil)
			k.changeSlice("greeter-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = []discoveryv1.Endpoint{ready(a)} })
			awaitIDs(t, conn, "a")
			l.Stop(t)
			xdstest.Equal(t, "outages that are logged", 0, k.log.Count("does not answer"))
		})
	}
}
