package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/kubetest"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/testutils"
)

// memory is a Source whose objects the test writes.
type memory struct {
	t      testing.TB
	source *Source
	// generation makes each object another version.
	generation int64
}

func newMemory(t testing.TB) *memory {
	t.Helper()
	clients, err := NewClients(&rest.Config{Host: "http://127.0.0.1:1"}) // which nothing asks
	xdstest.NoError(t, err)
	return &memory{t: t, source: newSource(Options{Clients: clients, Moving: time.Nanosecond, Log: slog.New(slog.DiscardHandler)})}
}

// put writes an object.
func (m *memory) put(object *unstructured.Unstructured) {
	m.t.Helper()
	m.generation++
	object.SetGeneration(m.generation)
	object.SetUID(types.UID(object.GetKind() + object.GetNamespace() + object.GetName()))
	s := m.source
	switch kind := object.GetKind(); kind {
	case "Service":
		m.typed(s.services[0], object, &corev1.Service{})
	case "EndpointSlice":
		m.typed(s.endpointSlices[0], object, &discoveryv1.EndpointSlice{})
	case "ReferenceGrant":
		m.store(s.routes.grants[0], object)
	default:
		m.store(s.routes.informers[kind][0], object)
	}
}

func (m *memory) typed(informer cache.SharedIndexInformer, object *unstructured.Unstructured, as runtime.Object) {
	m.t.Helper()
	xdstest.NoError(m.t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, as))
	m.store(informer, as)
}

// store stores an object, and marks what it and its former version concern, as events do.
func (m *memory) store(informer cache.SharedIndexInformer, object any) {
	m.t.Helper()
	before, _, err := informer.GetIndexer().Get(object)
	xdstest.NoError(m.t, err)
	xdstest.NoError(m.t, informer.GetIndexer().Update(object))
	for _, of := range []any{before, object} {
		switch of := of.(type) {
		case *corev1.Service:
			m.source.mark(serviceOf(of))
		case *discoveryv1.EndpointSlice:
			m.source.mark(sliceService(of))
		case *unstructured.Unstructured:
			m.source.mu.Lock()
			m.source.routesMarked = true
			m.source.mu.Unlock()
			m.source.signal()
		}
	}
}

// greeter makes the Service greeter of a namespace, and a policy for its clients.
func (m *memory) greeter(namespace string) {
	m.t.Helper()
	m.store(m.source.services[0], &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "greeter", Namespace: namespace},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "p8080", Port: 8080}}},
	})
	m.put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "dynxds.io/v1alpha1", "kind": "MeshHTTPRoute", "metadata": map[string]any{"name": "greeter", "namespace": namespace},
		"spec": map[string]any{
			"targetRef": map[string]any{"kind": "MeshSubset", "tags": map[string]any{"zone": "a"}},
			"to": []any{map[string]any{"targetRef": map[string]any{"kind": "MeshService", "name": "greeter"}, "rules": []any{map[string]any{
				"filters": []any{map[string]any{"type": "RequestHeaderModifier", "requestHeaderModifier": map[string]any{
					"set": []any{map[string]any{"name": "zone", "value": "a"}},
				}}},
			}}}},
		},
	}})
}

// endpoint makes an address the only endpoint of the Service greeter of a namespace.
func (m *memory) endpoint(namespace, address string) {
	m.t.Helper()
	host, port, err := net.SplitHostPort(address)
	xdstest.NoError(m.t, err)
	n, err := strconv.ParseInt(port, 10, 32)
	xdstest.NoError(m.t, err)
	name, number := "p8080", int32(n)
	m.store(m.source.endpointSlices[0], &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "greeter-1", Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: "greeter"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &number}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{host}}},
	})
}

// odd writes an odd object into the namespace theirs, beside the Service greeter.ours.
func (m *memory) odd(r *rand.Rand) {
	m.t.Helper()
	object, err := kubetest.Odd(r, "theirs", "greeter.ours")
	xdstest.NoError(m.t, err)
	m.put(object)
}

// rendered is what clients of the namespace ours get of greeter.ours.
func (m *memory) rendered() string {
	m.t.Helper()
	content, err := m.source.Read(m.t.Context())
	xdstest.NoError(m.t, err)
	_, err = site.ValidateContent(content, "")
	xdstest.NoError(m.t, err)
	var text strings.Builder
	for _, zone := range []string{"a", "b"} {
		items, err := site.Resources(site.View{Content: content, Service: "greeter.ours:8080", Tags: map[string]string{"namespace": "ours", "service": "default.ours", "zone": zone}})
		xdstest.NoError(m.t, err)
		for _, item := range items {
			if item.Err != nil {
				fmt.Fprintln(&text, item.TypeURL, item.Name, item.Err)
				continue
			}
			fmt.Fprintln(&text, item.TypeURL, item.Name, protojson.Format(item.Resource.Any()))
		}
	}
	return text.String()
}

// Whatever objects there are in a namespace, clients of another one get of its Service what they got without.
func FuzzOddObjects(f *testing.F) {
	for seed := range uint64(25) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		m := newMemory(t)
		m.greeter("ours")
		m.endpoint("ours", "10.0.0.1:8080")
		want := m.rendered()
		for range 5 {
			for range 6 {
				m.odd(r)
			}
			xdstest.Equal(t, "what clients get beside odd objects", want, m.rendered())
		}
	})
}

// serve runs a control plane of the objects.
func (m *memory) serve(onLeftOut func([]meshroute.Report)) (address string) {
	m.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	listening, ended := make(chan net.Addr, 1), make(chan error, 1)
	opts := site.Options{
		Open:  func(context.Context, *slog.Logger) (site.Documents, error) { return m.source, nil },
		Place: "cluster", Dir: "memory", OnLeftOut: onLeftOut, RemovalDelay: controlplane.DefaultRemovalDelay,
		Ready: func(address net.Addr) { listening <- address },
	}
	opts.Serve.Listen = "127.0.0.1:0"
	go func() { ended <- site.Run(ctx, opts) }()
	m.t.Cleanup(func() {
		stop()
		xdstest.NoError(m.t, <-ended)
	})
	select {
	case address := <-listening:
		return address.String()
	case err := <-ended:
		ended <- nil
		m.t.Fatal(err)
		return ""
	}
}

// greet makes RPCs until a backend answers; none may fail.
func greet(t *testing.T, conn *grpc.ClientConn, backend string) {
	t.Helper()
	cmdtest.Await(t, func() string {
		response, err := testgrpc.NewTestServiceClient(conn).UnaryCall(testutils.Context(t), &testgrpc.SimpleRequest{})
		xdstest.NoError(t, err)
		if id := response.GetServerId(); id != backend {
			return fmt.Sprintf("%s answers, want %s", id, backend)
		}
		return ""
	})
}

// Objects in one namespace neither fail RPCs to the Service of another one nor hold up changes of its endpoints; a server
// that starts serves it.
func TestOddObjects(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	backends := []*testutils.Backend{testutils.StartBackend(t, "0"), testutils.StartBackend(t, "1")}
	r := rand.New(rand.NewPCG(1, 2))
	m.greeter("ours")
	m.endpoint("ours", backends[0].Addr())
	for range 50 {
		m.odd(r)
	}
	address := m.serve(nil)
	conn := cmdtest.DialXDS(t, "xds:///greeter", testutils.Bootstrap("client", address, testutils.NodeField("metadata", map[string]any{"namespace": "ours"})))
	for i := range 30 {
		for range 5 {
			m.odd(r)
		}
		m.endpoint("ours", backends[i%2].Addr())
		greet(t, conn, strconv.Itoa(i%2))
	}
}

// An endpoint with a port that nobody can connect to is left out, and others of the Service are not. It is reported until it is
// corrected. A server that has such an object when it starts serves the others.
func TestOddPorts(t *testing.T) {
	t.Parallel()
	for _, port := range []int32{0, -1, 70000} {
		xdstest.Parallel(t, fmt.Sprint(port), func(t *testing.T) {
			m := newMemory(t)
			backend := testutils.StartBackend(t, "backend")
			m.greeter("ours")
			m.endpoint("ours", backend.Addr())
			name := "p8080"
			odd := &discoveryv1.EndpointSlice{
				ObjectMeta:  metav1.ObjectMeta{Name: "odd", Namespace: "ours", Labels: map[string]string{discoveryv1.LabelServiceName: "greeter"}},
				AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
			}
			m.store(m.source.endpointSlices[0], odd)
			reports := make(chan []meshroute.Report, 10)
			address := m.serve(func(list []meshroute.Report) { reports <- list })
			conn := cmdtest.DialXDS(t, "xds:///greeter.ours", testutils.Bootstrap("client", address))
			greet(t, conn, "backend")
			list := <-reports
			want := fmt.Sprintf("ours/greeter: error: the endpoints of EndpointSlice odd are left out, as its port \"p8080\" is %d", port)
			if len(list) != 1 || list[0].String() != want {
				t.Errorf("reports are %v, want %q", list, want)
			}
			corrected, number := odd.DeepCopy(), int32(8080)
			corrected.Ports[0].Port = &number
			m.store(m.source.endpointSlices[0], corrected)
			if list := <-reports; len(list) > 0 {
				t.Errorf("after the correction reports are %v", list)
			}
		})
	}
}

// A Service with a name that nobody can dial is left out, and others are not.
func TestUndialable(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	backend := testutils.StartBackend(t, "backend")
	m.greeter("ours")
	m.endpoint("ours", backend.Addr())
	m.store(m.source.services[0], &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "odd", Namespace: "theirs"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "p\xff", Port: 8080}}},
	})
	reports := make(chan []meshroute.Report, 10)
	address := m.serve(func(list []meshroute.Report) { reports <- list })
	greet(t, cmdtest.DialXDS(t, "xds:///greeter.ours", testutils.Bootstrap("client", address)), "backend")
	if list := <-reports; len(list) == 0 || list[0].Source.File != "theirs/odd" {
		t.Errorf("reports are %v", list)
	}
	odd := cmdtest.DialXDS(t, "xds:///odd.theirs", testutils.Bootstrap("client", address))
	_, err := testgrpc.NewTestServiceClient(odd).UnaryCall(testutils.Context(t), &testgrpc.SimpleRequest{})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("the RPC to the odd Service: got %v", err)
	}
}

// tagged makes a policy of the namespace theirs for its clients with a tag, and all Services or one.
func (m *memory) tagged(name, tag, value string, to map[string]any) {
	m.t.Helper()
	m.put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "dynxds.io/v1alpha1", "kind": "MeshHTTPRoute", "metadata": map[string]any{"name": name, "namespace": "theirs"},
		"spec": map[string]any{
			"targetRef": map[string]any{"kind": "MeshSubset", "tags": map[string]any{tag: value}},
			"to": []any{map[string]any{"targetRef": to, "rules": []any{map[string]any{"filters": []any{map[string]any{
				"type": "RequestHeaderModifier", "requestHeaderModifier": map[string]any{"set": []any{map[string]any{"name": name, "value": value}}},
			}}}}}},
		},
	}})
}

// Policies that tell apart too many kinds of clients cost those of their own namespace: its newest ones do not count. Tags that
// clients in Kubernetes do not have are errors.
func TestTooManyKinds(t *testing.T) {
	t.Parallel()
	all, one := map[string]any{"kind": "Mesh"}, map[string]any{"kind": "MeshService", "name": "greeter", "namespace": "ours"}
	for name, test := range map[string]struct {
		write func(m *memory)
		// leftOut is the least number of reports, said what the first of them says, and reached the header that a client of their
		// oldest policy gets, if any.
		leftOut       int
		said, reached string
	}{
		"unknown tags": {func(m *memory) {
			for i := range 13 {
				m.tagged(fmt.Sprint("p", i), fmt.Sprint("t", i), "x", all)
			}
		}, 13, "clients in Kubernetes have no tag \"t0\"; use namespace, service_account, pod, node, zone", ""},
		"all Services": {func(m *memory) {
			for i := range 8 {
				for _, tag := range []string{"pod", "node", "zone", "service_account"} {
					m.tagged(fmt.Sprint(tag, i), tag, fmt.Sprint("x", i), all)
				}
			}
		}, 10, "this has no effect: with the older policies of the same namespace for all Services it tells apart more than 32 kinds of clients", "node0"},
		"one Service": {func(m *memory) {
			for i := range 8 {
				for _, tag := range []string{"pod", "node", "zone", "service_account"} {
					m.tagged(fmt.Sprint(tag, i), tag, fmt.Sprint("x", i), one)
				}
			}
		}, 1, "this has no effect for the service greeter.ours:8080: with the older policies of the same namespace for it, it tells apart more than 256 kinds of clients", "node0"},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			m := newMemory(t)
			m.greeter("ours")
			m.endpoint("ours", "10.0.0.1:8080")
			want := m.rendered()
			test.write(m)
			xdstest.Equal(t, "what clients get beside the policies", want, m.rendered())
			content, err := m.source.Read(t.Context())
			xdstest.NoError(t, err)
			v, err := site.ValidateContent(content, "")
			xdstest.NoError(t, err)
			leftOut := slices.DeleteFunc(v.Reports, func(r meshroute.Report) bool { return !r.LeftOut })
			if len(leftOut) < test.leftOut || !strings.Contains(leftOut[0].Message, test.said) {
				t.Errorf("reports on what is left out are %v, want %d that begin with %q", leftOut, test.leftOut, test.said)
			}
			tags := map[string]string{"namespace": "theirs", "node": "x0"}
			items, err := site.Resources(site.View{Content: content, Service: "greeter.ours:8080", Tags: tags})
			xdstest.NoError(t, err)
			var text strings.Builder
			xdstest.NoError(t, site.PrintJSON(&text, items))
			if !strings.Contains(text.String(), test.reached) {
				t.Errorf("the oldest policy has no effect: %s", &text)
			}
		})
	}
}
