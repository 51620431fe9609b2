package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/meshtest/load"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// counting tells how many endpoints each version of a ClusterLoadAssignment has.
type counting struct {
	t      testing.TB
	counts chan int
}

func (c counting) ResourceChanged(value any, err error, done func()) {
	defer done()
	if err != nil {
		c.t.Errorf("endpoints: %v", err)
		return
	}
	n := 0
	for _, l := range value.(*xdsresource.Endpoints).Localities {
		n += len(l.Endpoints)
	}
	c.counts <- n
}

func (c counting) AmbientError(err error, done func()) {
	defer done()
	c.t.Errorf("endpoints: %v", err)
}

// patience bounds how long 50,000 endpoints may take: with the race detector, on a busy machine, it is not a matter of seconds.
const patience = 3 * time.Minute

func (c counting) await(want int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	last := 0
	for last != want {
		select {
		case last = <-c.counts:
		case <-ctx.Done():
			c.t.Fatalf("there are %d endpoints, want %d", last, want)
		}
	}
}

// A Service may have 50,000 endpoints, in 50 slices. A change of them arrives, and one of a small Service beside.
func TestManyEndpoints(t *testing.T) {
	t.Parallel()
	k, pods := newKubeAlone(t), &pods{} // else each server of a test has them too
	const slices, each = 50, 1000
	k.service("large", "8080")
	for i := range slices {
		k.slice(fmt.Sprintf("large-%d", i), "large", "", 8080, farEndpoints(i, each)...)
	}
	k.service("greeter", "8080")
	a, _ := pods.start(t, "a")
	b, _ := pods.start(t, "b")
	k.slice("greeter-1", "greeter", "", 8080, ready(a))
	began := time.Now()
	lap := func(what string) {
		t.Logf("%s: %s", what, time.Since(began).Round(time.Millisecond))
		began = time.Now()
	}
	server := k.serving(func(f *flags) { f.namespaces = []string{k.namespace} })
	lap("start")

	config, err := bootstrap.Parse("test", testutils.Bootstrap("client", server))
	xdstest.NoError(t, err)
	client, err := xdsclient.New(config, xdsclient.Options{})
	xdstest.NoError(t, err)
	t.Cleanup(client.Close)
	watcher := counting{t, make(chan int, 100)}
	client.Watch(xdsresource.EndpointsType, "large."+k.namespace+":8080", watcher)
	watcher.await(slices * each)
	lap("first answer")

	conn := pods.client(t, server, "xds:///greeter."+k.namespace)
	awaitIDs(t, conn, "a")
	l := load.Start(t, conn)
	began = time.Now()
	k.changeSlice("large-7", func(s *discoveryv1.EndpointSlice) { s.Endpoints = s.Endpoints[1:] })
	k.changeSlice("greeter-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = []discoveryv1.Endpoint{ready(b)} })
	for deadline := began.Add(patience); call(t, conn) != "b"; {
		if time.Now().After(deadline) {
			t.Fatal("the change of the other Service does not arrive")
		}
	}
	lap("change beside")
	watcher.await(slices*each - 1)
	lap("change")
	l.Stop(t)
}

// farEndpoints are endpoints that nobody reaches.
func farEndpoints(slice, n int) (list []discoveryv1.Endpoint) {
	for i := range n {
		list = append(list, ready(fmt.Sprintf("10.%d.%d.%d", 100+slice, i/250, i%250+1)))
	}
	return list
}
