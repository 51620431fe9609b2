package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/testutils"
)

// open follows the objects of the test's namespace.
func (k *kube) open(ctx context.Context) *cluster.Source {
	k.t.Helper()
	clients, err := cluster.NewClients(k.cluster.Config())
	xdstest.NoError(k.t, err)
	source, err := cluster.Open(ctx, cluster.Options{Clients: clients, Namespaces: []string{k.namespace}, Log: slog.New(slog.DiscardHandler)})
	xdstest.NoError(k.t, err)
	k.t.Cleanup(source.Close)
	return source
}

// A write to one EndpointSlice leaves what is made of all other Services as it is: the same pointers.
func TestWriteCostsOneService(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	for i := range 20 {
		name := fmt.Sprintf("service-%d", i)
		k.service(name, "8080")
		k.slice(name+"-1", name, "", 8080, ready(fmt.Sprintf("10.2.0.%d", i+1)))
	}
	ctx := testutils.Context(t)
	source := k.open(ctx)
	before, err := source.Read(ctx)
	xdstest.NoError(t, err)
	k.changeSlice("service-7-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = append(s.Endpoints, ready("10.2.1.1")) })
	for {
		after, err := source.Read(ctx)
		xdstest.NoError(t, err)
		if after != before {
			var differ []string
			for i, s := range after.Services {
				if s != before.Services[i] {
					differ = append(differ, s.Name)
				}
			}
			xdstest.Equal(t, "services that differ", "service-7."+k.namespace+":8080", strings.Join(differ, " "))
			return
		}
		if !source.Wait(ctx, time.Time{}) {
			t.Fatal("the write does not arrive")
		}
	}
}

// A status that is written leaves what is made of routes as it is.
func TestStatusCostsNothing(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	k.service("greeter", "8080")
	k.object(route("greeter", "NS", "greeter", "{name: greeter, port: 8080}"))
	ctx := testutils.Context(t)
	source := k.open(ctx)
	before, err := source.Read(ctx)
	xdstest.NoError(t, err)
	xdstest.Equal(t, "policies", 1, len(before.Policies))
	_, err = k.dynamic().Resource(cluster.GRPCRoutes).Namespace(k.namespace).Patch(ctx, "greeter", types.MergePatchType, []byte(`{"status": {"parents": [{
		"controllerName": "example.com/other", "parentRef": {"name": "greeter"},
		"conditions": [{"type": "Test", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}]}}`), metav1.PatchOptions{}, "status")
	xdstest.NoError(t, err)
	for {
		after, err := source.Read(ctx)
		xdstest.NoError(t, err)
		if after != before {
			t.Fatal("the content is another one")
		}
		verdicts, _ := source.Verdicts()
		if list, _, _ := unstructured.NestedSlice(verdicts[0].Object.Object, "status", "parents"); len(list) > 0 {
			return
		}
		if !source.Wait(ctx, time.Time{}) {
			t.Fatal("the status does not arrive")
		}
	}
}

// The flags that the reference names are flags of a command.
func TestDocumentedFlags(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/tasks/kubernetes.md")
	xdstest.NoError(t, err)
	named := regexp.MustCompile("`--([a-z-]+)").FindAllStringSubmatch(string(text), -1)
	if len(named) < 5 {
		t.Errorf("found %d flags", len(named))
	}
	for _, match := range named {
		if !slices.ContainsFunc(newRoot(nil).Commands(), func(cmd *cobra.Command) bool { return cmd.Flag(match[1]) != nil }) {
			t.Errorf("no command has a flag --%s", match[1])
		}
	}
}
