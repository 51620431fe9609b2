package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/meshtest/load"
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
// ends while twice as many start, then half, then the rest. settle is called when new ones are ready.
func (d *deployment) restart(settle func(added []*replica)) (added []*replica) {
	d.k.t.Helper()
	old := slices.Clone(d.all)
	quarter := len(old) / 4
	d.end(old[:quarter])
	for _, ending := range [][]*replica{old[quarter : 3*quarter], old[3*quarter:]} {
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
	l := load.Start(t, conn)
	// Others end once these have RPCs: a test on a busy machine has no times.
	connected := func(added []*replica) {
		for _, r := range added {
			xdstest.NoError(t, r.backend.Wait(testutils.Context(t), 1))
		}
	}
	added := d.restart(connected)
	xdstest.Equal(t, "new pods", 100, len(added))
	cmdtest.Await(t, func() string {
		if id := call(t, conn); !slices.ContainsFunc(added, func(r *replica) bool { return r.backend.ID() == id }) {
			return id + " still answers"
		}
		return ""
	})
	l.Stop(t)
}
