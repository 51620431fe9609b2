package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/kubetest"
	"github.com/dynxds/dynxds/testutils"
)

const manifests = "../../deploy/kubernetes"

// objectsOf reads the objects of a file.
func objectsOf(t testing.TB, path string) (list []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(path)
	xdstest.NoError(t, err)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return list
		}
		xdstest.NoError(t, err)
		if object.Object != nil {
			list = append(list, object)
		}
	}
}

// mappers has what API servers have, by cluster: to ask each time takes long.
var mappers sync.Map

// mapper knows the resources of kinds. It asks again for one that it does not know.
func (k *kube) mapper() meta.RESTMapper {
	k.t.Helper()
	if known, ok := mappers.Load(k.cluster); ok {
		return known.(meta.RESTMapper)
	}
	found, err := discovery.NewDiscoveryClientForConfig(k.cluster.Config())
	xdstest.NoError(k.t, err)
	known, _ := mappers.LoadOrStore(k.cluster, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found)))
	return known.(meta.RESTMapper)
}

// apply applies an object as "kubectl apply --server-side" does, first only to try.
func (k *kube) apply(object *unstructured.Unstructured) {
	k.t.Helper()
	if err := k.tryToApply(object); err != nil {
		k.t.Fatalf("applying %s %s: %v", object.GetKind(), object.GetName(), err)
	}
}

// tryToApply is apply, and returns why the API server refuses the object.
func (k *kube) tryToApply(object *unstructured.Unstructured) error {
	k.t.Helper()
	config := k.cluster.Config()
	kind := object.GroupVersionKind()
	mapping, err := k.mapper().RESTMapping(kind.GroupKind(), kind.Version)
	xdstest.NoError(k.t, err)
	client, err := dynamic.NewForConfig(config)
	xdstest.NoError(k.t, err)
	text, err := json.Marshal(object)
	xdstest.NoError(k.t, err)
	to := client.Resource(mapping.Resource)
	var in dynamic.ResourceInterface = to
	if mapping.Scope.Name() == "namespace" {
		in = to.Namespace(object.GetNamespace())
		if object.GetNamespace() == "" {
			in = to.Namespace(k.namespace)
		}
	}
	for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
		options := metav1.PatchOptions{FieldManager: "test", DryRun: dryRun, FieldValidation: metav1.FieldValidationStrict}
		_, err := in.Patch(testutils.Context(k.t), object.GetName(), types.ApplyPatchType, text, options)
		if err != nil {
			return err
		}
	}
	return nil
}

// The API server takes the manifests, and a pod of the Deployment in a namespace that enforces "restricted".
func TestManifests(t *testing.T) {
	t.Parallel()
	k := newKube(t).in("dynxds-system")
	var names struct{ Resources []string }
	text, err := os.ReadFile(filepath.Join(manifests, "kustomization.yaml"))
	xdstest.NoError(t, err)
	xdstest.NoError(t, yaml.Unmarshal(text, &names))
	for _, name := range names.Resources {
		for _, object := range objectsOf(t, filepath.Join(manifests, name)) {
			k.apply(object)
		}
	}
	ctx := testutils.Context(t)
	deployment, err := k.client.AppsV1().Deployments(k.namespace).Get(ctx, "dynxds", metav1.GetOptions{})
	xdstest.NoError(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "dynxds-"}, Spec: deployment.Spec.Template.Spec}
	_, err = k.client.CoreV1().Pods(k.namespace).Create(ctx, pod, metav1.CreateOptions{})
	xdstest.NoError(t, err)
	if args := strings.Join(deployment.Spec.Template.Spec.Containers[0].Args[1:], " "); newServe(nil).ParseFlags(strings.Fields(args)) != nil {
		t.Errorf("the command does not have the flags %s", args)
	}
}

// The examples of clients are taken too.
func TestExampleClients(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	restricted := "restricted-" + k.namespace
	k.createNamespace(restricted, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	k = k.in(restricted)
	ctx := testutils.Context(t)
	for file, name := range map[string]string{"client.yaml": "frontend", "client-with-file.yaml": "frontend-with-file"} {
		for _, object := range objectsOf(t, filepath.Join(manifests, "example", file)) {
			k.apply(object)
		}
		deployment, err := k.client.AppsV1().Deployments(k.namespace).Get(ctx, name, metav1.GetOptions{})
		xdstest.NoError(t, err)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: deployment.Spec.Template.Spec}
		pod.Spec.ServiceAccountName = "default" // which the disabled plugin would set
		_, err = k.client.CoreV1().Pods(k.namespace).Create(ctx, pod, metav1.CreateOptions{})
		xdstest.NoError(t, err)
	}
}

// permitted returns a kubeconfig of an account of the namespace with all permissions of the manifest.
func (k *kube) permitted() (path string) {
	k.t.Helper()
	for _, object := range objectsOf(k.t, filepath.Join(manifests, "rbac.yaml")) {
		text, err := json.Marshal(object)
		xdstest.NoError(k.t, err)
		k.object(strings.NewReplacer(`"name":"dynxds"`, `"name":"dynxds-NS"`, `"dynxds-system"`, `"NS"`).Replace(string(text)))
	}
	path = filepath.Join(k.t.TempDir(), "kubeconfig")
	xdstest.NoError(k.t, k.cluster.Kubeconfig(path, k.token("dynxds-"+k.namespace, kubetest.Audience, nil)))
	return path
}

// Everything works with the permissions of the manifest: routing, the Lease, status and events. No other server writes these here.
func TestPermissions(t *testing.T) {
	t.Parallel()
	k, pods := newKubeAlone(t), &pods{}
	server := k.serving(func(f *flags) {
		f.kubeconfig, f.leaseNamespace, f.namespaces = k.permitted(), k.namespace, []string{k.namespace}
	})
	k.echo(pods, "greeter", 8080)
	awaitInvoke(t, pods.client(t, server, "xds:///greeter."+k.namespace), echoMethod, nil, "greeter")
	k.object(route("grpc", "NS", "greeter", "{name: missing, port: 8080}"))
	k.object(strings.Replace(route("http", "NS", "greeter", "{name: greeter, port: 8080}"), "GRPCRoute", "HTTPRoute", 1))
	k.object(policy("policy", toService("greeter", `{backendRefs: [{kind: MeshService, name: greeter}]}`)))
	k.awaitConditions("grpc", "Accepted=True/Accepted", "ResolvedRefs=False/BackendNotFound")
	k.awaitConditionsOf(cluster.HTTPRoutes, "http", "Accepted=False/Conflicted", "ResolvedRefs=True/ResolvedRefs")
	k.awaitPolicy("policy", "Accepted=True/Accepted")
	k.awaitEvent("grpc", "BackendNotFound", "Warning GRPCRoute there is no Service "+k.namespace+"/missing")
}

// Requests to the API server do not wait for each other: after a restart, the tokens of all clients are reviewed at once.
func TestRequestsAreNotThrottled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	xdstest.NoError(t, shared.Kubeconfig(path, shared.AdminToken()))
	clients, _, err := (&flags{kubeconfig: path}).clients()
	xdstest.NoError(t, err)
	if limiter := clients.Typed.AuthenticationV1().RESTClient().GetRateLimiter(); limiter != nil {
		t.Errorf("at most %v TokenReviews a second", limiter.QPS())
	}
}
