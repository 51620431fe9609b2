package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dynxds/dynxds/cmd/dynxds/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// TestFigures measures, if DYNXDS_FIGURES is set, what docs/reference/kubernetes.md says: 1,000 Services of 50 endpoints.
func TestFigures(t *testing.T) {
	if os.Getenv("DYNXDS_FIGURES") == "" {
		t.Skip("DYNXDS_FIGURES is not set")
	}
	k, pods := newKube(t), &pods{}
	const services, each = 1000, 50
	ctx := context.Background()
	var writing sync.WaitGroup
	for w := range 8 {
		writing.Go(func() {
			for i := w; i < services; i += 8 {
				name := fmt.Sprintf("service-%d", i)
				_, err := k.client.CoreV1().Services(k.namespace).Create(ctx, &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "grpc", Port: 8080}}},
				}, metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				var list []discoveryv1.Endpoint
				for j := range each {
					e := ready(fmt.Sprintf("10.%d.%d.%d", 10+i/250, i%250, j+1))
					zone, node := fmt.Sprintf("zone-%d", j%3), fmt.Sprintf("node-%d", j)
					e.Zone, e.NodeName = &zone, &node
					e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: k.namespace, Name: fmt.Sprintf("%s-%d", name, j), UID: "1c5d3a0e-3f1f-4c59-a6c6-3f0e3a0e4c59"}
					list = append(list, e)
				}
				k.slice(name+"-1", name, "grpc", 8080, list...)
			}
		})
	}
	writing.Wait()
	before := heap()
	began := time.Now()
	server := k.serving(func(f *flags) { f.namespaces = []string{k.namespace} })
	t.Logf("start with %d Services of %d endpoints: %s", services, each, time.Since(began))
	t.Logf("memory: %d bytes an endpoint", (heap()-before)/(services*each))

	k.service("greeter", "8080")
	a, _ := pods.start(t, "a")
	b, _ := pods.start(t, "b")
	k.slice("greeter-1", "greeter", "", 8080, ready(a))
	conn := pods.client(t, server, "xds:///greeter."+k.namespace)
	call(t, conn)
	var took []time.Duration
	ids := []string{"a", "b"}
	for i := range 100 {
		ip, want := []string{b, a}[i%2], ids[(i+1)%2]
		at := time.Now()
		// The old endpoint is terminating, so that the first RPC elsewhere is due to the write.
		old := []string{a, b}[i%2]
		k.changeSlice("greeter-1", func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = []discoveryv1.Endpoint{ready(ip), terminating(old)}
			at = time.Now()
		})
		for {
			response, err := testgrpc.NewTestServiceClient(conn).UnaryCall(testutils.Context(t), &testgrpc.SimpleRequest{})
			xdstest.NoError(t, err)
			if response.GetServerId() == want {
				break
			}
		}
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	t.Logf("from a write to the first RPC at the new endpoint: p50 %s, p99 %s", took[50], took[98])
}

// heap is the size of what is in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
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
	clients, err := cluster.NewClients(k.cluster.Config())
	xdstest.NoError(t, err)
	ctx := testutils.Context(t)
	source, err := cluster.Open(ctx, cluster.Options{Clients: clients, Namespaces: []string{k.namespace}, Log: slog.New(slog.DiscardHandler)})
	xdstest.NoError(t, err)
	t.Cleanup(source.Close)
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
		if _, ok := source.Wait(ctx, time.Time{}); !ok {
			t.Fatal("the write does not arrive")
		}
	}
}

// The flags that the reference names are flags of a command.
func TestDocumentedFlags(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/reference/kubernetes.md")
	xdstest.NoError(t, err)
	named := regexp.MustCompile("`--([a-z-]+)").FindAllStringSubmatch(string(text), -1)
	if len(named) < 5 {
		t.Errorf("found %d flags", len(named))
	}
	for _, match := range named {
		if !slices.ContainsFunc(newRoot().Commands(), func(cmd *cobra.Command) bool { return cmd.Flag(match[1]) != nil }) {
			t.Errorf("no command has a flag --%s", match[1])
		}
	}
}
