package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	_ "sigs.k8s.io/gateway-api/apis/v1"             // for its CRDs
	_ "sigs.k8s.io/gateway-api/conformance/apis/v1" // for its manifests

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/kubetest"
	"github.com/dynxds/dynxds/testutils"
)

// moduleDir returns the folder of a module.
func moduleDir(path string) (string, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	return strings.TrimSpace(string(dir)), err
}

// installCRDs installs those of the Gateway API, with the fields that are experiments: retries and sessions. and ours.
func installCRDs(c *kubetest.Cluster) error {
	dir, err := moduleDir("sigs.k8s.io/gateway-api")
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	// retry and sessionPersistence are fields of the experimental channel, which has all of the standard one.
	dir = filepath.Join(dir, "config/crd/experimental", "gateway.networking.k8s.io_")
	for _, path := range []string{dir + "grpcroutes.yaml", dir + "httproutes.yaml", dir + "referencegrants.yaml", filepath.Join(manifests, "crd.yaml")} {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, object); err != nil {
			return err
		}
		if _, err := client.Resource(crds).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	// They are served a moment later.
	for {
		var errs []error
		for _, resource := range []schema.GroupVersionResource{cluster.GRPCRoutes, cluster.HTTPRoutes, cluster.ReferenceGrants, cluster.MeshHTTPRoutes} {
			_, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
			errs = append(errs, err)
		}
		err := errors.Join(errs...)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// object applies an object that is written in YAML, with NS for the namespace.
func (k *kube) object(text string) {
	k.t.Helper()
	object := &unstructured.Unstructured{}
	xdstest.NoError(k.t, yaml.Unmarshal([]byte(strings.ReplaceAll(text, "NS", k.namespace)), object))
	k.apply(object)
}

// echo starts a backend that answers every method, as a Service of its own.
func (k *kube) echo(pods *pods, name string, port int32) {
	k.t.Helper()
	b := testutils.StartBackend(k.t, name, grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil && err != io.EOF {
			return err
		}
		return stream.SendMsg(&emptypb.Empty{})
	}))
	k.service(name, fmt.Sprint(port))
	k.slice(name+"-1", name, "", port, ready(pods.add(b.Addr())))
}

// invoke makes an RPC, and returns who answered, or the code of the error.
func invoke(t testing.TB, conn *grpc.ClientConn, method string, headers map[string]string) string {
	t.Helper()
	ctx := metadata.NewOutgoingContext(testutils.Context(t), metadata.New(headers))
	var header metadata.MD
	err := conn.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{}, grpc.Header(&header))
	if err != nil {
		return status.Code(err).String()
	}
	return strings.Join(header.Get(testutils.BackendIDHeader), ",")
}

// awaitInvoke waits until an RPC has an outcome.
func awaitInvoke(t testing.TB, conn *grpc.ClientConn, method string, headers map[string]string, want string) {
	t.Helper()
	cmdtest.Await(t, func() string {
		if got := invoke(t, conn, method, headers); got != want {
			return fmt.Sprintf("%s with %v: got %s, want %s", method, headers, got, want)
		}
		return ""
	})
}

const echoMethod = "/gateway_api_conformance.echo_basic.grpcecho.GrpcEcho/Echo"

// route is a GRPCRoute with one rule.
func route(name, parentNamespace, parent, backends string) string {
	return `{apiVersion: gateway.networking.k8s.io/v1, kind: GRPCRoute, metadata: {name: ` + name + `}, spec: {
		parentRefs: [{group: "", kind: Service, namespace: ` + parentNamespace + `, name: ` + parent + `}],
		rules: [{backendRefs: [` + backends + `]}]}}`
}

func (k *kube) dynamic() dynamic.Interface {
	k.t.Helper()
	client, err := dynamic.NewForConfig(k.cluster.Config())
	xdstest.NoError(k.t, err)
	return client
}

// awaitConditions waits until a GRPCRoute has these conditions of ours, for each parent.
func (k *kube) awaitConditions(name string, want ...string) {
	k.t.Helper()
	k.awaitConditionsOf(cluster.GRPCRoutes, name, want...)
}

func (k *kube) awaitConditionsOf(resource schema.GroupVersionResource, name string, want ...string) {
	k.t.Helper()
	k.awaitStatus(resource, name, func(conditions []map[string]any) string {
		var got []string
		for _, c := range conditions {
			got = append(got, fmt.Sprintf("%s=%s/%s", c["type"], c["status"], c["reason"]))
		}
		if !slices.Equal(got, want) {
			return fmt.Sprintf("the conditions of %s are %v, want %v", name, got, want)
		}
		return ""
	})
}

// awaitStatus waits until the status of a route is that of its generation, and nothing is wrong with our conditions in it.
func (k *kube) awaitStatus(resource schema.GroupVersionResource, name string, fault func(conditions []map[string]any) string) (resourceVersion string) {
	k.t.Helper()
	routes := k.dynamic().Resource(resource).Namespace(k.namespace)
	cmdtest.Await(k.t, func() string {
		object, err := routes.Get(testutils.Context(k.t), name, metav1.GetOptions{})
		xdstest.NoError(k.t, err)
		resourceVersion = object.GetResourceVersion()
		_, status := (&cluster.Route{Object: object}).Status()
		conditions := cluster.Conditions(status)
		for _, c := range conditions {
			if c["observedGeneration"] != object.GetGeneration() {
				return fmt.Sprintf("the status is that of generation %v, and not %d", c["observedGeneration"], object.GetGeneration())
			}
		}
		return fault(conditions)
	})
	return resourceVersion
}

// Status says what a route amounts to, beside what others say, and is not written again without need.
func TestStatus(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	k.serving()
	k.echo(pods, "greeter", 8080)
	k.object(route("good", "NS", "greeter", "{name: greeter, port: 8080}"))
	k.object(route("no-backend", "NS", "greeter", "{name: missing, port: 8080}"))
	k.awaitConditions("good", "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
	k.awaitConditions("no-backend", "Accepted=True/Accepted", "ResolvedRefs=False/BackendNotFound")
	routes := k.dynamic().Resource(cluster.GRPCRoutes).Namespace(k.namespace)
	ctx := testutils.Context(t)
	before, err := routes.Get(ctx, "good", metav1.GetOptions{})
	xdstest.NoError(t, err)
	// Another controller says something, and a Service changes: our entry stays, and so does the other one.
	parents, _, _ := unstructured.NestedSlice(before.Object, "status", "parents")
	parents = append(parents, map[string]any{
		"parentRef": map[string]any{"group": "", "kind": "Service", "name": "greeter"}, "controllerName": "example.com/other", "conditions": []any{
			map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
		}})
	xdstest.NoError(t, unstructured.SetNestedSlice(before.Object, parents, "status", "parents"))
	written, err := routes.UpdateStatus(ctx, before, metav1.UpdateOptions{})
	xdstest.NoError(t, err)
	k.echo(pods, "missing", 8080)
	k.awaitConditions("no-backend", "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
	after, err := routes.Get(ctx, "good", metav1.GetOptions{})
	xdstest.NoError(t, err)
	xdstest.Equal(t, "resource version of a route whose verdict did not change", written.GetResourceVersion(), after.GetResourceVersion())
}
