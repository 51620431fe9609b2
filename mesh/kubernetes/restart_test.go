package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dynxds/dynxds/internal/dnsserver"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/testutils"
)

// deployment has the pods of a Service in one EndpointSlice.
type deployment struct {
	k       *kube
	pods    *pods
	service string
	started int
	all     []*replica
}

// replica is a pod.
type replica struct {
	endpoint discoveryv1.Endpoint
	backend  *testutils.Backend
	// ready is when the slice had it.
	ready time.Time
}

// deploy creates a Service with pods.
func deploy(k *kube, pods *pods, service string, n int) *deployment {
	k.t.Helper()
	k.service(service, "grpc:8080")
	k.slice(service+"-1", service, "grpc", 8080)
	d := &deployment{k: k, pods: pods, service: service}
	d.add(n)
	return d
}

// add starts pods, which are ready.
func (d *deployment) add(n int) (added []*replica) {
	d.k.t.Helper()
	for range n {
		ip, backend := d.pods.start(d.k.t, fmt.Sprintf("pod-%d", d.started))
		d.started++
		// RPCs take a moment, so that some are under way when a pod ends.
		backend.SetBehaviour(func(ctx context.Context, _ testutils.RPC) error {
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Millisecond):
			}
			return nil
		})
		added = append(added, &replica{endpoint: ready(ip), backend: backend})
	}
	d.all = append(d.all, added...)
	d.write()
	for _, r := range added {
		r.ready = time.Now()
	}
	return added
}

// end ends pods as Kubernetes does: their servers stop gracefully while the EndpointSlice is written that says that they are
// terminating, in no order; then they do not serve any more; then they are gone.
func (d *deployment) end(ending []*replica) {
	d.k.t.Helper()
	var stopping sync.WaitGroup
	for _, r := range ending {
		r.endpoint = terminating(r.endpoint.Addresses[0])
		stopping.Go(r.backend.GracefulStop)
	}
	d.write()
	stopping.Wait()
	for _, r := range ending {
		r.endpoint.Conditions.Serving = &no
	}
	d.write()
	d.all = slices.DeleteFunc(d.all, func(r *replica) bool { return slices.Contains(ending, r) })
	d.write()
}

func (d *deployment) write() {
	d.k.t.Helper()
	d.k.changeSlice(d.service+"-1", func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = nil
		for _, r := range d.all {
			s.Endpoints = append(s.Endpoints, r.endpoint)
		}
	})
}

// restart replaces all pods as a Deployment does by default, with maxSurge and maxUnavailable of 25 %: a quarter of the old ones
// ends while twice as many start, then half, then the rest. start is called while new ones start, and settle when they are ready.
func (d *deployment) restart(start func(), settle func(added []*replica)) (added []*replica) {
	d.k.t.Helper()
	old := slices.Clone(d.all)
	quarter := len(old) / 4
	d.end(old[:quarter])
	for _, ending := range [][]*replica{old[quarter : 3*quarter], old[3*quarter:]} {
		start()
		next := d.add(min(2*quarter, len(old)-len(added)))
		added = append(added, next...)
		settle(next)
		d.end(ending)
	}
	return added
}

// No RPC fails while 100 pods are replaced, and all new ones get RPCs.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	server := k.serving()
	d := deploy(k, pods, "greeter", 100)
	conn := pods.client(t, server, "xds:///greeter."+k.namespace)
	call(t, conn)
	l := startLoad(conn, 4)
	// Others end once these have RPCs: a test on a busy machine has no times.
	connected := func(added []*replica) {
		for _, r := range added {
			xdstest.NoError(t, r.backend.Wait(testutils.Context(t), 1))
		}
	}
	added := d.restart(func() {}, connected)
	xdstest.Equal(t, "new pods", 100, len(added))
	cmdtest.Await(t, func() string {
		if id := call(t, conn); !slices.ContainsFunc(added, func(r *replica) bool { return r.backend.ID() == id }) {
			return id + " still answers"
		}
		return ""
	})
	t.Logf("%d RPCs, none failed", l.end(t))
}

// resolve keeps the addresses of a headless Service in a DNS server as CoreDNS does: those of endpoints that are ready.
func (k *kube) resolve(service string) (dns *dnsserver.Server) {
	k.t.Helper()
	dns = dnsserver.Start(k.t)
	events, err := k.client.DiscoveryV1().EndpointSlices(k.namespace).Watch(context.Background(), metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + service,
	})
	xdstest.NoError(k.t, err)
	var watching sync.WaitGroup
	k.t.Cleanup(func() {
		events.Stop()
		watching.Wait()
	})
	known := make(chan struct{})
	watching.Go(func() {
		first := true
		for event := range events.ResultChan() {
			slice, ok := event.Object.(*discoveryv1.EndpointSlice)
			if !ok {
				continue
			}
			var addresses []string
			for _, e := range slice.Endpoints {
				if *e.Conditions.Ready {
					addresses = append(addresses, e.Addresses...)
				}
			}
			dns.SetA(service+"."+k.namespace+".svc.cluster.local", addresses...)
			if first {
				close(known)
			}
			first = false
		}
	})
	<-known
	return dns
}

// TestRestartFigures compares, if DYNXDS_FIGURES is set, a rolling restart with gRPC's own DNS resolver and a headless Service, as
// docs/tasks/kubernetes.md has it. Both clients see the same pods.
func TestRestartFigures(t *testing.T) {
	if os.Getenv("DYNXDS_FIGURES") == "" {
		t.Skip("DYNXDS_FIGURES is not set")
	}
	for _, start := range []time.Duration{3 * time.Second, 15 * time.Second} {
		t.Run("pods start in "+start.String(), func(t *testing.T) {
			k, pods := newKube(t), &pods{}
			server := k.serving()
			d := deploy(k, pods, "greeter", 100)
			dns := k.resolve("greeter")
			xds := pods.client(t, server, "xds:///greeter."+k.namespace)
			byDNS := cmdtest.Dial(t, "dns://"+dns.Addr()+"/greeter."+k.namespace+".svc.cluster.local:8080", pods.dial(),
				grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))
			call(t, xds)
			call(t, byDNS)
			// gRPC's resolver asks at most every 30 s; both clients have run for a while.
			const interval = 30 * time.Second
			time.Sleep(interval + time.Second)
			loads := map[string]*load{"xds": startLoad(xds, 2), "dns": startLoad(byDNS, 2)}
			time.Sleep(time.Second)
			began := time.Now()
			added := d.restart(func() { time.Sleep(start) }, func([]*replica) {})
			took := time.Since(began)
			time.Sleep(interval + 5*time.Second)
			for name, l := range loads {
				l.halt()
				var waits []time.Duration
				for _, r := range added {
					if at := l.first[r.backend.ID()]; !at.IsZero() {
						waits = append(waits, at.Sub(r.ready))
					}
				}
				slices.Sort(waits)
				if len(waits) == 0 {
					t.Fatalf("%s: no new pod got an RPC", name)
				}
				t.Logf("%s: restart in %s: %d of %d RPCs failed in %s; %d of %d new pods got RPCs, from ready to the first p50 %s, max %s; first error: %v",
					name, took.Round(100*time.Millisecond), l.failed, l.sent, l.lastFailed.Sub(l.firstFailed).Round(100*time.Millisecond), len(waits), len(added),
					percentile(waits, 50), percentile(waits, 100), l.errors[:min(1, len(l.errors))])
			}
		})
	}
}
