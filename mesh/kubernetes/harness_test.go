package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/kubetest"
	"github.com/dynxds/dynxds/mesh/meshtest/load"
	"github.com/dynxds/dynxds/testutils"
)

// kube is a namespace of its own in an API server.
type kube struct {
	t         testing.TB
	cluster   *kubetest.Cluster
	client    kubernetes.Interface
	namespace string
	// log, unless it is nil, also gets what servers log.
	log *xdstest.Log
}

var numbers atomic.Int64

// newKube makes a namespace in the API server that all tests share.
func newKube(t testing.TB) *kube { return newKubeIn(t, shared) }

func newKubeIn(t testing.TB, cluster *kubetest.Cluster) *kube {
	t.Helper()
	client, err := kubernetes.NewForConfig(cluster.Config())
	xdstest.NoError(t, err)
	k := &kube{t: t, cluster: cluster, client: client}
	k.namespace = k.addNamespace()
	return k
}

// addNamespace makes another namespace.
func (k *kube) addNamespace() string {
	k.t.Helper()
	name := fmt.Sprintf("ns-%d", numbers.Add(1))
	k.createNamespace(name, nil)
	return name
}

func (k *kube) createNamespace(name string, labels map[string]string) {
	k.t.Helper()
	_, err := k.client.CoreV1().Namespaces().Create(testutils.Context(k.t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	xdstest.NoError(k.t, err)
}

// in is the same API server with another namespace.
func (k *kube) in(namespace string) *kube {
	other := *k
	other.namespace = namespace
	return &other
}

// service creates a Service with ports, "8080" or "name:8080".
func (k *kube) service(name string, ports ...string) *corev1.Service {
	k.t.Helper()
	return k.serviceWith(name, func(s *corev1.Service) {
		for _, text := range ports {
			portName, number, named := strings.Cut(text, ":")
			if !named {
				portName, number = "", text
			}
			n, err := strconv.ParseInt(number, 10, 32)
			xdstest.NoError(k.t, err)
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: portName, Port: int32(n)})
		}
	})
}

func (k *kube) serviceWith(name string, change func(*corev1.Service)) *corev1.Service {
	k.t.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}
	change(s)
	s, err := k.client.CoreV1().Services(k.namespace).Create(testutils.Context(k.t), s, metav1.CreateOptions{})
	xdstest.NoError(k.t, err)
	return s
}

// slice creates an EndpointSlice of a Service with one port.
func (k *kube) slice(name, service, portName string, port int32, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	k.t.Helper()
	return k.sliceWith(name, service, func(s *discoveryv1.EndpointSlice) {
		s.Ports = []discoveryv1.EndpointPort{{Name: &portName, Port: &port}}
		s.Endpoints = endpoints
	})
}

func (k *kube) sliceWith(name, service string, change func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
	k.t.Helper()
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	change(s)
	s, err := k.client.DiscoveryV1().EndpointSlices(k.namespace).Create(testutils.Context(k.t), s, metav1.CreateOptions{})
	xdstest.NoError(k.t, err)
	return s
}

// changeSlice updates an EndpointSlice.
func (k *kube) changeSlice(name string, change func(*discoveryv1.EndpointSlice)) {
	k.t.Helper()
	of := k.client.DiscoveryV1().EndpointSlices(k.namespace)
	s, err := of.Get(testutils.Context(k.t), name, metav1.GetOptions{})
	xdstest.NoError(k.t, err)
	change(s)
	_, err = of.Update(testutils.Context(k.t), s, metav1.UpdateOptions{})
	xdstest.NoError(k.t, err)
}

// pods are backends behind addresses of pods, which the API server does not let be those of loopback. Clients reach them by
// dialing with pods.dial.
type pods struct {
	mu sync.Mutex
	at map[string]string
	n  int
}

// start starts a backend, and returns the IP address that its pod has, of whatever port.
func (p *pods) start(t testing.TB, id string) (ip string, b *testutils.Backend) {
	t.Helper()
	b = testutils.StartBackend(t, id)
	return p.add(b.Addr()), b
}

// add gives an address to a backend.
func (p *pods) add(backend string) (ip string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil {
		p.at = map[string]string{}
	}
	p.n++
	ip = fmt.Sprintf("10.1.%d.%d", p.n/250, p.n%250+1)
	p.at[ip] = backend
	return ip
}

// dial reaches backends at the addresses of their pods.
func (p *pods) dial() grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		backend := p.at[host]
		p.mu.Unlock()
		if backend == "" {
			return nil, fmt.Errorf("there is no pod %s", address)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", backend)
	})
}

// ready is an endpoint that is ready.
func ready(ip string) discoveryv1.Endpoint {
	yes := true
	return discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}}
}

var yes, no = true, false

// terminating is an endpoint that serves and is about to end.
func terminating(ip string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}}
}

// hinted is an endpoint in a zone that is for clients of zones, and perhaps of a node.
func hinted(ip, zone string, zones []string, nodes ...string) discoveryv1.Endpoint {
	e := ready(ip)
	e.Zone = &zone
	e.Hints = &discoveryv1.EndpointHints{}
	for _, zone := range zones {
		e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: zone})
	}
	for _, node := range nodes {
		e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: node})
	}
	return e
}

// serving runs the command with the permissions of an administrator, and returns the address of the server.
func (k *kube) serving(change ...func(*flags)) (address string) {
	k.t.Helper()
	path := filepath.Join(k.t.TempDir(), "kubeconfig")
	xdstest.NoError(k.t, k.cluster.Kubeconfig(path, k.cluster.AdminToken()))
	f := &flags{kubeconfig: path, startTimeout: startTime, audience: "dynxds", anonymous: true, leaseNamespace: "default", leaseDuration: 3 * time.Second}
	f.opts.Serve.Listen = "127.0.0.1:0"
	for _, change := range change {
		change(f)
	}
	var log io.Writer = k.t.Output()
	if k.log != nil {
		log = io.MultiWriter(log, k.log)
	}
	return runServe(k.t, f, log)
}

// runServe runs the command.
func runServe(t testing.TB, f *flags, log io.Writer) (address string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	listening, ended := make(chan net.Addr, 1), make(chan error, 1)
	f.opts.Ready = func(address net.Addr) { listening <- address }
	go func() { ended <- f.run(ctx, slog.New(slog.NewTextHandler(log, nil))) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	select {
	case address := <-listening:
		return address.String()
	case err := <-ended:
		ended <- nil
		t.Fatalf("serve: %v", err)
		return ""
	}
}

// client dials a target of a control plane.
func (p *pods) client(t testing.TB, server, target string, opts ...testutils.BootstrapOption) *grpc.ClientConn {
	t.Helper()
	return cmdtest.DialXDS(t, target, testutils.Bootstrap("client", server, opts...), p.dial())
}

// loaded makes a service greeter of two pods, of which only the first has an endpoint, and RPCs to it. a and b are the addresses
// of the pods.
func (k *kube) loaded(t testing.TB, pods *pods, server string) (a, b string, conn *grpc.ClientConn, l *load.Load) {
	t.Helper()
	k.service("greeter", "8080")
	a, _ = pods.start(t, "a")
	b, _ = pods.start(t, "b")
	k.slice("greeter-1", "greeter", "", 8080, ready(a))
	conn = pods.client(t, server, "xds:///greeter."+k.namespace)
	awaitIDs(t, conn, "a")
	return a, b, conn, load.Start(t, conn)
}

// startTime is how long the command may take to start in tests, on a busy machine.
const startTime = time.Minute

// call makes a unary RPC that waits for a connection, and returns who answered.
func call(t testing.TB, conn *grpc.ClientConn) (id string) {
	t.Helper()
	response, err := testgrpc.NewTestServiceClient(conn).UnaryCall(testutils.Context(t), &testgrpc.SimpleRequest{}, grpc.WaitForReady(true))
	xdstest.NoError(t, err)
	return response.GetServerId()
}

// awaitIDs makes RPCs until exactly the wanted backends answer: each of them, and for a number of RPCs in a row no other.
func awaitIDs(t testing.TB, conn *grpc.ClientConn, want ...string) {
	t.Helper()
	const enough = 12
	cmdtest.Await(t, func() string {
		got := map[string]int{}
		for range enough {
			response, err := testgrpc.NewTestServiceClient(conn).UnaryCall(testutils.Context(t), &testgrpc.SimpleRequest{})
			if err != nil {
				return fmt.Sprintf("an RPC failed: %v", err)
			}
			got[response.GetServerId()]++
		}
		if ids := slices.Sorted(maps.Keys(got)); !slices.Equal(ids, want) {
			return fmt.Sprintf("%v answer, want %v", ids, want)
		}
		return ""
	})
}

// in says that a client is in a namespace.
func in(namespace string) testutils.BootstrapOption {
	return testutils.NodeField("metadata", map[string]any{"namespace": namespace})
}
