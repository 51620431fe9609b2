package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// TestFigures measures, if DYNXDS_FIGURES is set, what docs/tasks/kubernetes.md says. The server is a process of its own; the API
// server and the clients have the same processors.
func TestFigures(t *testing.T) {
	if os.Getenv("DYNXDS_FIGURES") == "" {
		t.Skip("DYNXDS_FIGURES is not set")
	}
	const services, each, clients = 1000, 50, 1000
	k, pods := newKubeAlone(t), &pods{}
	a, _ := pods.start(t, "a")
	b, _ := pods.start(t, "b")
	k.service("greeter", "8080")
	k.slice("greeter-1", "greeter", "", 8080, ready(a))
	k.fill(services, each)
	f := k.started(services)
	t.Logf("%d Services of %d endpoints: first answer %s after the start; resident memory %d MB", services, each, f.answered.Round(time.Millisecond), f.resident()>>20)

	conn := pods.client(t, f.server, "xds:///greeter."+k.namespace)
	call(t, conn)
	measure := func(n int) {
		t.Helper()
		over, watched := k.latencies(func(want string) {
			for {
				response, err := testgrpc.NewTestServiceClient(conn).UnaryCall(testutils.Context(t), &testgrpc.SimpleRequest{})
				xdstest.NoError(t, err)
				if response.GetServerId() == want {
					return
				}
			}
		}, map[string]string{"a": a, "b": b})
		t.Logf("%d clients: from a write to a plain watch p50 %s, p99 %s; from there to the first RPC p50 %s, p99 %s (%d writes)", n,
			percentile(watched, 50), percentile(watched, 99), percentile(over, 50), percentile(over, 99), len(over))
	}
	measure(1)
	for i := range clients - 1 {
		f.watch(t, i, "greeter")
	}
	measure(clients)

	for i := range services {
		f.watch(t, clients+i, fmt.Sprintf("service-%d", i))
	}
	const lasts, perSecond = 20 * time.Second, 10
	before, began := f.cpu(), time.Now()
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for i := 0; time.Since(began) < lasts; i++ {
		<-tick.C
		k.changeSlice(fmt.Sprintf("service-%d-1", i%services), func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = &no })
	}
	t.Logf("%d changes a second, %d clients of the Services: %.0f %% of a processor; resident memory %d MB", perSecond, services,
		(f.cpu()-before).Seconds()/time.Since(began).Seconds()*100, f.resident()>>20)

	const many, few = 5000, 10
	k = newKubeAlone(t)
	k.fill(many, few)
	f = k.started(many)
	t.Logf("%d Services of %d endpoints: first answer %s after the start; resident memory %d MB", many, few, f.answered.Round(time.Millisecond), f.resident()>>20)
}

// fill makes Services, "service-0" and so on, with an EndpointSlice each.
func (k *kube) fill(services, each int) {
	k.t.Helper()
	var writing sync.WaitGroup
	for w := range 8 {
		writing.Go(func() {
			for i := w; i < services; i += 8 {
				name := fmt.Sprintf("service-%d", i)
				_, err := k.client.CoreV1().Services(k.namespace).Create(context.Background(), &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "grpc", Port: 8080}}},
				}, metav1.CreateOptions{})
				if err != nil {
					k.t.Error(err)
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
}

// measured is a server in a process of its own.
type measured struct {
	k      *kube
	server string
	pid    int
	// answered is when it had answered a client, since its start.
	answered time.Duration
}

// started starts a server, and waits until a client has the endpoints of the last Service.
func (k *kube) started(services int) *measured {
	k.t.Helper()
	began := time.Now()
	f := &measured{k: k}
	f.server, f.pid, _ = k.process("--namespace", k.namespace)
	for {
		conn, err := net.Dial("tcp", f.server)
		if err == nil {
			conn.Close()
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	watcher := f.watch(k.t, -1, fmt.Sprintf("service-%d", services-1))
	<-watcher.counts
	f.answered = time.Since(began)
	return f
}

// watch starts a client that subscribes to the endpoints of a Service.
func (f *measured) watch(t testing.TB, n int, service string) counting {
	t.Helper()
	config, err := bootstrap.Parse("test", testutils.Bootstrap(fmt.Sprintf("client-%d", n), f.server))
	xdstest.NoError(t, err)
	client, err := xdsclient.New(config, xdsclient.Options{})
	xdstest.NoError(t, err)
	t.Cleanup(client.Close)
	watcher := counting{t, make(chan int, 1000)}
	client.Watch(xdsresource.EndpointsType, service+"."+f.k.namespace+":8080", watcher)
	return watcher
}

// cpu is the time of processors that the server has had.
func (f *measured) cpu() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", f.pid))
	xdstest.NoError(f.k.t, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')'):]))
	user, _ := strconv.Atoi(fields[12])
	system, _ := strconv.Atoi(fields[13])
	return time.Duration(user+system) * time.Second / 100
}

// resident is the server's resident memory.
func (f *measured) resident() int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", f.pid))
	xdstest.NoError(f.k.t, err)
	pages, _ := strconv.Atoi(strings.Fields(string(text))[1])
	return pages * os.Getpagesize()
}

// latencies moves a Service from one of two pods to the other, again and again. watched are the times from a write to its event in
// a plain watch, and over those from the event until reached returns, which waits for an RPC at a pod.
func (k *kube) latencies(reached func(want string), pods map[string]string) (over, watched []time.Duration) {
	k.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	of := k.client.DiscoveryV1().EndpointSlices(k.namespace)
	events, err := of.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=greeter-1"})
	xdstest.NoError(k.t, err)
	seen := make(chan time.Time, 1000)
	go func() {
		for range events.ResultChan() {
			seen <- time.Now()
		}
	}()
	<-seen // the slice as it is
	slice, err := of.Get(ctx, "greeter-1", metav1.GetOptions{})
	xdstest.NoError(k.t, err)
	last := "a"
	if slice.Endpoints[0].Addresses[0] != pods[last] {
		last = "b"
	}
	for range 200 {
		next := map[string]string{"a": "b", "b": "a"}[last]
		// The old pod is terminating, so that the first RPC elsewhere is due to the write.
		slice.Endpoints = []discoveryv1.Endpoint{ready(pods[next]), terminating(pods[last])}
		began := time.Now()
		slice, err = of.Update(ctx, slice, metav1.UpdateOptions{})
		xdstest.NoError(k.t, err)
		reached(next)
		at := time.Now()
		event := <-seen
		watched, over = append(watched, event.Sub(began)), append(over, max(0, at.Sub(event)))
		last = next
	}
	slices.Sort(over)
	slices.Sort(watched)
	return over, watched
}

// percentile is one of sorted times.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[(len(sorted)-1)*p/100].Round(100 * time.Microsecond)
}
