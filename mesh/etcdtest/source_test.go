package etcdtest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/store"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/testutils"
)

const prefix = "/mesh"

// key returns the key of a document.
func key(name string) string { return prefix + "/docs/" + name }

// service is the document of a service with one endpoint.
func service(name, address string) string {
	return fmt.Sprintf("kind: Service\nname: %s\nendpoints: [{address: '%s'}]\n", name, address)
}

// follower is a source, with the last content that is good.
type follower struct {
	t      *testing.T
	source *store.Source
	log    *xdstest.Log

	mu       sync.Mutex
	services map[string]*meshroute.Service
	news     chan struct{} // closed with the next content
}

// follow follows a store until the test ends.
func follow(t *testing.T, s *store.Store) *follower {
	t.Helper()
	f := &follower{t: t, log: new(xdstest.Log), news: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	f.source = store.Follow(s, slog.New(slog.NewTextHandler(f.log, nil)))
	f.take(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-f.source.Changed():
			case <-time.After(time.Until(f.source.Again())):
			}
			f.take(ctx)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		f.source.Close()
	})
	return f
}

func (f *follower) take(ctx context.Context) {
	content, err := f.source.Read(ctx)
	if err != nil {
		f.log.Write([]byte(fmt.Sprintf("msg=faulty error=%q\n", err)))
		return
	}
	f.keep(content)
}

func (f *follower) keep(content *folder.Content) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.services = make(map[string]*meshroute.Service)
	for _, s := range content.Services {
		f.services[s.Name] = s
	}
	close(f.news)
	f.news = make(chan struct{})
}

// now returns the services.
func (f *follower) now() map[string]*meshroute.Service {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.services
}

// has waits until the services are these: the address of each by its name.
func (f *follower) has(want map[string]string) {
	f.t.Helper()
	ctx := testutils.Context(f.t)
	for {
		f.mu.Lock()
		got, news := make(map[string]string), f.news
		for name, s := range f.services {
			got[name] = s.Endpoints[0].Address
		}
		f.mu.Unlock()
		if maps.Equal(got, want) {
			return
		}
		select {
		case <-news:
		case <-ctx.Done():
			f.t.Fatalf("got services %v, want %v", got, want)
		}
	}
}

func (f *follower) logged(texts ...string) {
	f.t.Helper()
	xdstest.NoError(f.t, f.log.Wait(testutils.Context(f.t), texts...))
}

// Documents that are written, changed and deleted arrive; other keys are named once, and have no effect.
func TestFollow(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.put(key("a.yaml"), service("a", "a:1"))
	c.put(key("notes.txt"), "nothing")
	c.put("/mesh/other", "nothing")
	c.put("/mesh-too/docs/z.yaml", service("z", "of another mesh:1"))
	f := follow(t, c.open(prefix, 0))
	f.has(map[string]string{"a": "a:1"})
	f.logged("is not a document", key("notes.txt"))
	a := f.now()["a"]

	c.put(key("b.yaml"), service("b", "b:1"))
	f.has(map[string]string{"a": "a:1", "b": "b:1"})
	c.put(key("c/c.yaml"), service("c", "c:1"))
	f.logged("is not a document", key("c/c.yaml"))
	c.put(key(strings.Repeat("x", 1<<20)), "")
	f.logged("is not a document", "xxx…")
	c.put(key("b.yaml"), service("b", "b:2"))
	f.has(map[string]string{"a": "a:1", "b": "b:2"})
	c.put(key("a.yaml"), service("a", "a:1"))
	c.delete(key("b.yaml"))
	c.put(key("notes.txt"), "more")
	f.has(map[string]string{"a": "a:1"})
	if f.now()["a"] != a {
		t.Error("a document did not change, and its service is another one")
	}
	// At the same time one is deleted and another one created, so that there are as many as before.
	_, err := c.client.Txn(testutils.Context(t)).Then(clientv3.OpDelete(key("a.yaml")), clientv3.OpPut(key("d.yaml"), service("d", "d:1"))).Commit()
	xdstest.NoError(t, err)
	f.has(map[string]string{"d": "d:1"})
	xdstest.Equal(t, "how often the log has the key that is no document", 1, f.log.Count(key("notes.txt")))
	if size := len(f.log.String()); size > 10_000 {
		t.Errorf("the log has %d bytes", size)
	}
}

// However the network was cut, and for how long: replicas have what was written meanwhile 5 s after its return.
func TestReplicasAgreeAfterAPartition(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]func(*cable, bool){"connections are refused": (*cable).setCut, "connections are silent": (*cable).setStalled} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 1)
			c.put(key("a.yaml"), service("a", "a:1"))
			own := newCable(t, c.members[0].cable.address)
			s, err := store.Open(store.Options{URL: "etcd://" + own.address + prefix})
			xdstest.NoError(t, err)
			t.Cleanup(s.Close)
			f, other := follow(t, s), follow(t, c.open(prefix, 0))
			f.has(map[string]string{"a": "a:1"})

			// With gRPC's default the pause between two attempts is about 10 s by then.
			const cut, limit = 25 * time.Second, 5 * time.Second
			part(own, true)
			returns := time.After(cut)
			f.logged("the store does not answer")
			c.put(key("a.yaml"), service("a", "a:2"))
			other.has(map[string]string{"a": "a:2"})
			f.has(map[string]string{"a": "a:1"})
			<-returns
			part(own, false)
			began := time.Now()
			f.has(map[string]string{"a": "a:2"})
			took := time.Since(began)
			t.Logf("the replica has the change %s after the network's return", took)
			if took > limit {
				t.Errorf("want it after %s", limit)
			}
		})
	}
}

// A store that is restored from a backup is read again, whether its revision is older or newer than that of the replica.
func TestRestoredStore(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]int{"older revision": 0, "newer revision": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, backup := newCluster(t, 1), newCluster(t, 1)
			backup.put(key("a.yaml"), service("a", "a:1"))
			for range later {
				backup.put("/other", "")
			}
			for i := range 10 {
				c.put(key("a.yaml"), service("a", fmt.Sprintf("a:%d", i+1)))
			}
			f := follow(t, c.open(prefix, 0))
			f.has(map[string]string{"a": "a:10"})
			c.members[0].cable.setTo(backup.members[0].cable.to...)
			f.has(map[string]string{"a": "a:1"})
			f.logged("etcd was restored from a backup")
			backup.put(key("a.yaml"), service("a", "a:2"))
			f.has(map[string]string{"a": "a:2"})
		})
	}
}

// Whichever member ceases to answer, without an end of its connections: changes arrive, and the store is
// not said to be gone.
func TestSlowMember(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.put(key("a.yaml"), service("a", "a:9"))
	f := follow(t, c.open(prefix, 15*time.Second))
	f.has(map[string]string{"a": "a:9"})
	for i, m := range c.members {
		direct := c.direct(i)
		m.cable.setStalled(true)
		address := fmt.Sprintf("a:%d", i+1)
		_, err := direct.Put(testutils.Context(t), key("a.yaml"), service("a", address))
		xdstest.NoError(t, err)
		f.has(map[string]string{"a": address})
		m.cable.setStalled(false)
	}
	if f.log.Count("the store does not answer") > 0 {
		t.Error("one member was slow, and the log says that the store does not answer")
	}
}

// A replica that starts while etcd does not answer, or while its documents are faulty or gone, is not ready, says why, and
// refuses clients, which would lose their services. When that is over, it serves.
func TestReplicaIsNotReady(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		begin, end func(*cluster)
		// details are in the log, and on the admin pages, where other pages leave them out.
		details string
	}{
		"documents that clients reject": {
			func(c *cluster) {
				c.put(key("b.yaml"), "kind: Resource\nresource: {'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: c, type: EDS}\n")
			},
			func(c *cluster) { c.delete(key("b.yaml")) },
			"Cluster c: clients reject it: eds_cluster_config",
		},
		"no etcd": {
			func(c *cluster) { c.members[0].cable.setCut(true) },
			func(c *cluster) { c.members[0].cable.setCut(false) },
			"cannot read the store at http://",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 1)
			c.put(key("backend.yaml"), service("backend", "10.0.0.1:80"))
			test.begin(c)
			r := startReplica(t, c, "--admin=127.0.0.1:0", "--metrics=127.0.0.1:0")
			r.logged("not ready: there is nothing to serve yet", test.details)
			for flag, details := range map[string]bool{"--admin": true, "--metrics": false} {
				status, text := cmdtest.GetAs(t, r.page(flag)+"healthz", "")
				if want := strings.ReplaceAll(test.details, `\`, ""); status != http.StatusServiceUnavailable ||
					!strings.HasPrefix(text, "NOT_SERVING\nthe store has ") || !strings.Contains(text, "nothing is published yet") || strings.Contains(text, want) != details {
					t.Errorf("/healthz of %s is %d, want 503, and with %q: %t\n%s", flag, status, want, details, text)
				}
			}
			conn := cmdtest.Dial(t, r.address)
			healthy := func(want healthpb.HealthCheckResponse_ServingStatus) {
				t.Helper()
				answer, err := healthpb.NewHealthClient(conn).Check(testutils.Context(t), &healthpb.HealthCheckRequest{})
				if err != nil || answer.GetStatus() != want {
					t.Errorf("the health service says %v, %v, want %v", answer, err, want)
				}
			}
			healthy(healthpb.HealthCheckResponse_NOT_SERVING)
			err := cmdtest.SotW(t, conn).Err()
			cmdtest.ErrorHas(t, "a stream of a client", err, "Unavailable", "not ready")

			test.end(c)
			r.logged("msg=serving")
			healthy(healthpb.HealthCheckResponse_SERVING)
			if status, text := cmdtest.GetAs(t, r.page("--admin")+"healthz", ""); status != http.StatusOK || text != "SERVING\n" {
				t.Errorf("/healthz is %d %q, want 200 SERVING", status, text)
			}
		})
	}
}
