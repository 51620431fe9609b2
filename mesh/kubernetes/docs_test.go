package main

import (
	"context"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/kubetest"
	"github.com/dynxds/dynxds/testutils"
)

// repository is the folder of the repository.
const repository = "../.."

// The commands of the documentation that need a cluster are carried out, by doccheck and kubectl.
func TestDocs(t *testing.T) {
	t.Parallel()
	kubectl, err := kubetest.Kubectl()
	xdstest.NoError(t, err)
	bin := t.TempDir()
	xdstest.NoError(t, os.Symlink(kubectl, filepath.Join(bin, "kubectl")))
	build := exec.Command("go", "build", "-o", filepath.Join(bin, "doccheck"), "./doccheck")
	build.Dir = filepath.Join(repository, "tools")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building doccheck: %v\n%s", err, output)
	}
	k := newKubeAlone(t)
	k.completeDeployments()
	kubeconfig, certificates := filepath.Join(bin, "kubeconfig"), t.TempDir()
	xdstest.NoError(t, k.cluster.Kubeconfig(kubeconfig, k.cluster.AdminToken()))
	cert, key := testca.New(t).Sign(&x509.Certificate{DNSNames: []string{"dynxds.dynxds-system.svc"}})
	xdstest.NoError(t, os.WriteFile(filepath.Join(certificates, "tls.crt"), cert, 0o600))
	xdstest.NoError(t, os.WriteFile(filepath.Join(certificates, "tls.key"), key, 0o600))

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(bin, "doccheck"), "-with", "kubernetes", "docs/tasks/kubernetes.md")
	command.Dir = repository
	command.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+kubeconfig, "CERTIFICATES="+certificates)
	output, err := command.CombinedOutput()
	t.Logf("%s", output)
	xdstest.NoError(t, err)
	_, err = k.client.AppsV1().Deployments("dynxds-system").Get(testutils.Context(t), "dynxds", metav1.GetOptions{})
	xdstest.NoError(t, err)
}

// completeDeployments says of all Deployments that their pods run, as there is neither a controller nor a kubelet.
func (k *kube) completeDeployments() {
	k.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	events, err := k.client.AppsV1().Deployments("").Watch(ctx, metav1.ListOptions{})
	xdstest.NoError(k.t, err)
	var watching sync.WaitGroup
	k.t.Cleanup(func() {
		stop()
		watching.Wait()
	})
	watching.Go(func() {
		for event := range events.ResultChan() {
			d, ok := event.Object.(*appsv1.Deployment)
			if !ok || d.Status.ObservedGeneration == d.Generation {
				continue
			}
			n := *d.Spec.Replicas
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
			// A conflict is with a newer object, of which there is an event.
			_, _ = k.client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
		}
	})
}
