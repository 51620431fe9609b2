package cluster_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

var (
	firstSeed = flag.Uint64("first", 1, "the first seed of TestEventStream")
	seeds     = flag.Uint64("seeds", 3, "how many seeds TestEventStream runs")
)

func init() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) } // client-go logs watches that end

// Services, slices, routes and grants come, change and go at random, while watches end, are forgotten by the API server, or it is away or silent:
// what is published then is what a control plane publishes that starts afterwards.
func TestEventStream(t *testing.T) {
	t.Parallel()
	var published atomic.Int64
	t.Cleanup(func() {
		if published.Load() == 0 {
			t.Error("nothing was ever published")
		}
	})
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { published.Add(int64(followStream(t, rand.New(rand.NewPCG(seed, 1))))) })
		})
	}
}

// followStream returns how much was published.
func followStream(t *testing.T, random *rand.Rand) (published int) {
	c := &randomCluster{random, newAPIServer(rand.New(rand.NewPCG(random.Uint64(), 2)))}
	for range 10 {
		c.change()
	}
	c.api.setAway(false)
	follower := newFollower(t, c.api)
	defer follower.close()
	for range 8 {
		for range 1 + random.IntN(12) {
			c.change()
			time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
		}
		c.api.setAway(false)
		time.Sleep(5 * time.Minute) // the longest pause of an informer, and more
		synctest.Wait()
		fresh := newFollower(t, c.api)
		synctest.Wait()
		want := fresh.published()
		fresh.close()
		published += len(want)
		if xdstest.Equal(t, "what is published after the events (want: from the objects)", want, follower.published()); t.Failed() {
			return published
		}
	}
	return published
}

// randomCluster changes the objects of an API server.
type randomCluster struct {
	random *rand.Rand
	api    *apiServer
}

func (c *randomCluster) some(of ...string) string { return of[c.random.IntN(len(of))] }

func (c *randomCluster) service() named { return named{c.some("shop", "web"), c.some("a", "b", "c")} }

// change changes one object, or how the API server behaves.
func (c *randomCluster) change() {
	deleted := c.random.IntN(4) == 0
	switch c.random.IntN(17) {
	case 0:
		c.api.end(false)
	case 1:
		c.api.end(true)
	case 2:
		c.api.setAway(true)
	case 3:
		c.api.setAway(false)
	case 4, 5, 6:
		c.set("services", c.service(), deleted, object{"spec": object{"type": "ClusterIP", "ports": c.ports()}})
	case 7, 8, 9, 10:
		of := named{c.some("shop", "web"), c.some("s1", "s2", "s3", "s4", "s5")}
		c.set("endpointslices", of, deleted, object{
			"metadata": object{"labels": object{"kubernetes.io/service-name": c.some("a", "b", "c")}}, "addressType": "IPv4",
			"ports": c.slicePorts(), "endpoints": c.endpoints(),
		})
	case 11, 12:
		c.set(c.some("grpcroutes", "httproutes"), c.route(), deleted, object{"spec": object{"parentRefs": c.references(), "rules": []any{object{"backendRefs": c.references()}}}})
	case 13:
		c.set("meshhttproutes", c.route(), deleted, object{"spec": object{"to": []any{object{
			"targetRef": object{"kind": "MeshService", "name": c.service().name},
			"rules":     []any{object{"filters": []any{object{"type": "RequestHeaderModifier", "requestHeaderModifier": object{"set": []any{object{"name": "x", "value": c.some("1", "2")}}}}}}},
		}}}})
	case 14:
		c.set("referencegrants", named{c.some("shop", "web"), "g"}, deleted, object{"spec": object{
			"from": []any{object{"group": "gateway.networking.k8s.io", "kind": c.some("GRPCRoute", "HTTPRoute"), "namespace": c.some("shop", "web")}},
			"to":   []any{object{"group": "", "kind": "Service"}},
		}})
	case 15:
		c.set("namespaces", named{"", c.some("shop", "web")}, deleted, object{"metadata": object{"labels": object{cluster.ClosedLabel: c.some("true", "false")}}})
	case 16:
		c.api.setSilent()
	}
}

func (c *randomCluster) set(resource string, of named, deleted bool, o object) {
	if deleted {
		o = nil
	}
	c.api.set(resource, of, o)
}

func (c *randomCluster) route() named { return named{c.some("shop", "web"), c.some("r1", "r2")} }

// ports are those of a Service: "grpc", or that and another.
func (c *randomCluster) ports() []any {
	ports := []any{object{"name": "grpc", "port": 80, "protocol": "TCP"}}
	if c.random.IntN(2) == 0 {
		ports = append(ports, object{"name": c.some("admin", "debug"), "port": 81, "protocol": "TCP"})
	}
	return ports
}

func (c *randomCluster) slicePorts() (ports []any) {
	for i, name := range []string{"grpc", "admin", "debug"} {
		if c.random.IntN(3) > 0 {
			ports = append(ports, object{"name": name, "port": 8080 + i, "protocol": "TCP"})
		}
	}
	return ports
}

func (c *randomCluster) endpoints() (list []any) {
	for i := range 5 {
		if c.random.IntN(2) == 0 {
			list = append(list, object{"addresses": []any{fmt.Sprint("10.0.0.", i+1)}, "conditions": object{
				"ready": c.random.IntN(4) > 0, "serving": c.random.IntN(4) > 0, "terminating": c.random.IntN(4) == 0,
			}})
		}
	}
	return list
}

// references are those of a route to parents or backends.
func (c *randomCluster) references() (list []any) {
	for range 1 + c.random.IntN(2) {
		of := c.service()
		reference := object{"group": "", "kind": "Service", "name": of.name, "port": 80 + c.random.IntN(2)}
		if c.random.IntN(2) == 0 {
			reference["namespace"] = of.namespace
		}
		list = append(list, reference)
	}
	return list
}

// follower publishes what a source reads, as package site does.
type follower struct {
	store  *controlplane.Store
	source *cluster.Source
	stop   context.CancelFunc
	work   sync.WaitGroup
}

func newFollower(t *testing.T, api *apiServer) *follower {
	clients, err := cluster.NewClients(&rest.Config{Host: "http://api", Transport: api, QPS: -1})
	xdstest.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	f := &follower{store: controlplane.NewStore(), stop: stop}
	opening, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	f.source, err = cluster.Open(opening, cluster.Options{Clients: clients, Log: slog.New(slog.DiscardHandler)})
	xdstest.NoError(t, err)
	publisher := publish.New(f.store, publish.Options{Authority: "mesh"})
	f.work.Go(func() {
		for ctx.Err() == nil {
			content, err := f.source.Read(ctx)
			if err == nil {
				_, err = publisher.Publish(ctx, content)
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			select {
			case <-ctx.Done():
			case <-f.source.Changed():
			case <-time.After(time.Second): // an endpoint may no longer be kept
			}
		}
	})
	return f
}

// published has the version of each variant, which is a hash of its content.
func (f *follower) published() map[string]string {
	all := map[string]string{}
	for _, typeURL := range []string{meshroute.ListenerType, meshroute.RouteConfigurationType, meshroute.ClusterType, meshroute.EndpointsType} {
		for _, r := range f.store.Resources(typeURL) {
			all[strings.Join([]string{typeURL, r.Name(), fmt.Sprint(r.Parameters())}, " ")] = r.Version()
		}
	}
	return all
}

func (f *follower) close() {
	f.stop()
	f.work.Wait()
	f.source.Close()
}
