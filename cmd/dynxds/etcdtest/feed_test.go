package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/cmdtest"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/feed"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
	"github.com/dynxds/dynxds/internal/xdstest"
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

// follower is a feed, with what a control plane would publish.
type follower struct {
	t    *testing.T
	feed *feed.Feed
	log  *xdstest.Log
	stop func()

	mu       sync.Mutex
	services map[string]*meshroute.Service
	news     chan struct{} // closed with the next content
}

// follow follows a store until the test ends.
func follow(t *testing.T, s *store.Store, change ...func(*feed.Options)) *follower {
	t.Helper()
	f := &follower{t: t, log: new(xdstest.Log), news: make(chan struct{})}
	opts := feed.Options{Store: s, Pulse: 50 * time.Millisecond, Log: slog.New(slog.NewTextHandler(f.log, nil))}
	for _, c := range change {
		c(&opts)
	}
	ctx, cancel := context.WithCancel(context.Background())
	opened, err := feed.Open(ctx, opts)
	xdstest.NoError(t, err)
	f.feed = opened
	f.publish(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			if _, ok := f.feed.Wait(ctx, time.Time{}); !ok {
				return
			}
			f.publish(ctx)
		}
	})
	f.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		f.feed.Close()
	})
	t.Cleanup(f.stop)
	return f
}

func (f *follower) publish(ctx context.Context) {
	content, err := f.feed.Read(ctx)
	if err != nil {
		f.log.Write([]byte(fmt.Sprintf("msg=faulty error=%q\n", err)))
		if content = f.feed.Good(ctx); content == nil {
			return
		}
	}
	f.feed.Published(ctx, content)
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

// now returns the published services.
func (f *follower) now() map[string]*meshroute.Service {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.services
}

// has waits until the published services are these: the address of each by its name.
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

// is waits for a status of the feed.
func (f *follower) is(what string, ok func(feed.Status) bool) {
	f.t.Helper()
	cmdtest.Await(f.t, func() string {
		if s := f.feed.Status(); !ok(s) {
			return fmt.Sprintf("the feed is never %s: %+v", what, s)
		}
		return ""
	})
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
	f := follow(t, c.open(prefix, 0))
	f.has(map[string]string{"a": "a:1"})
	f.logged("is not a document", key("notes.txt"))
	a := f.now()["a"]

	c.put(key("b.yaml"), service("b", "b:1"))
	f.has(map[string]string{"a": "a:1", "b": "b:1"})
	c.put(key("c/c.yaml"), service("c", "c:1"))
	f.logged("is not a document", key("c/c.yaml"))
	c.put(key("b.yaml"), service("b", "b:2"))
	f.has(map[string]string{"a": "a:1", "b": "b:2"})
	if f.now()["a"] != a {
		t.Error("a document did not change, and its service is another one")
	}
	c.delete(key("b.yaml"))
	c.put(key("notes.txt"), "more")
	f.has(map[string]string{"a": "a:1"})
	if n := f.log.Count(key("notes.txt")); n != 1 {
		t.Errorf("the log has the key that is no document %d times, want once", n)
	}
}

// However many keys are no documents, and however long they are: some are named, and then it is said that there are more.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.put(key(strings.Repeat("x", 1<<20)), "") // before the others
	const keys = 150
	f := follow(t, c.open(prefix, 0))
	f.logged("is not a document", "xxx…")
	for i := range keys {
		c.put(key(fmt.Sprintf("%d.txt", i)), "")
	}
	c.put(key("a.yaml"), service("a", "a:1"))
	f.has(map[string]string{"a": "a:1"})
	if n, more := f.log.Count("is not a document"), f.log.Count("more keys of the store are not documents"); n != 100 || more != 1 {
		t.Errorf("the log names %d keys, and says %d times that there are more; want 100, and once", n, more)
	}
	if size := len(f.log.String()); size > 100_000 {
		t.Errorf("the log has %d bytes", size)
	}
}

// While a document is faulty, all replicas have the last documents that were good together, those that start later too,
// whatever etcd has compacted; when it is mended, they have the newest.
func TestFaultyDocument(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.put(key("a.yaml"), service("a", "a:1"))
	s := c.open(prefix, 0)
	f := follow(t, s)
	c.put(key("a.yaml"), service("a", "a:2"))
	good := map[string]string{"a": "a:2"}
	f.has(good)
	c.put(key("a.yaml"), "kind: Service\nnam: a\n")
	f.logged("msg=faulty", "docs/a.yaml:1")
	last := c.put(key("b.yaml"), service("b", "b:1"))
	f.is("at the newest revision", func(s feed.Status) bool { return s.Revision >= last })
	f.has(good)

	later := follow(t, s)
	later.has(good)
	_, err := c.client.Compact(testutils.Context(t), last)
	xdstest.NoError(t, err)
	follow(t, s).has(good)
	f.stop()
	later.stop()
	follow(t, s).has(good)
	c.put(key("a.yaml"), service("a", "a:3"))
	follow(t, s).has(map[string]string{"a": "a:3", "b": "b:1"})
}

// What a watch missed while it could not reach etcd arrives afterwards, also if etcd has compacted it; and
// what did not change remains as it is.
func TestCompaction(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	for _, name := range []string{"a", "b", "c"} {
		c.put(key(name+".yaml"), service(name, name+":1"))
	}
	direct := c.direct(0)
	s := c.open(prefix, 2*time.Second)
	f := follow(t, s)
	f.has(map[string]string{"a": "a:1", "b": "b:1", "c": "c:1"})
	a := f.now()["a"]

	c.members[0].cable.setCut(true)
	f.logged("the store does not answer", "since=")
	f.is("without its store", func(s feed.Status) bool { return !s.GoneSince.IsZero() })
	ctx := testutils.Context(t)
	for _, op := range []clientv3.Op{
		clientv3.OpPut(key("b.yaml"), service("b", "b:2")), clientv3.OpDelete(key("c.yaml")), clientv3.OpPut(key("d.yaml"), service("d", "d:1")),
	} {
		_, err := direct.Do(ctx, op)
		xdstest.NoError(t, err)
	}
	present, err := direct.Get(ctx, prefix)
	xdstest.NoError(t, err)
	_, err = direct.Compact(ctx, present.Header.Revision)
	xdstest.NoError(t, err)
	c.members[0].cable.setCut(false)

	f.has(map[string]string{"a": "a:1", "b": "b:2", "d": "d:1"})
	f.logged("the store answers again")
	// So says a watch that would miss them.
	watcher, err := s.Watch(ctx, present.Header.Revision-2)
	xdstest.NoError(t, err)
	defer watcher.Close()
	if _, err := watcher.Batch(<-watcher.Responses()); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("got error %v of a watch from a compacted revision, want ErrCompacted", err)
	}
	if f.now()["a"] != a {
		t.Error("a document did not change, and its service is another one")
	}
}

// A feed whose reading has failed, or whose watch has ended, tries again in a moment, however rare its pulses are.
func TestRecoveryWithoutPulses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// fail makes one of the two fail, and mend ends that.
		fail func(*cluster, *follower, chan<- os.Signal)
		mend func(*cluster)
	}{
		{"reading", func(c *cluster, f *follower, reload chan<- os.Signal) {
			c.members[0].cable.setCut(true)
			reload <- syscall.SIGHUP
			f.logged("the store does not answer")
		}, func(c *cluster) { c.members[0].cable.setCut(false) }},
		{"watch", func(c *cluster, f *follower, _ chan<- os.Signal) {
			ctx := testutils.Context(t)
			c.members[0].cable.setCut(true)
			direct := c.direct(0)
			_, err := direct.UserAdd(ctx, "root", "root")
			xdstest.NoError(t, err)
			_, err = direct.UserGrantRole(ctx, "root", "root")
			xdstest.NoError(t, err)
			_, err = direct.AuthEnable(ctx)
			xdstest.NoError(t, err)
			c.members[0].cable.setCut(false)
			f.logged("the watch has ended")
		}, func(c *cluster) {
			root, err := clientv3.New(clientv3.Config{Endpoints: c.members[0].cable.to, Username: "root", Password: "root"})
			xdstest.NoError(t, err)
			defer root.Close()
			_, err = root.AuthDisable(testutils.Context(t))
			xdstest.NoError(t, err)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 1)
			c.put(key("a.yaml"), service("a", "a:1"))
			s := c.open(prefix, time.Second)
			reload := make(chan os.Signal)
			f := follow(t, s, func(o *feed.Options) { o.Pulse, o.Reload = time.Hour, reload })
			c.put(key("a.yaml"), service("a", "a:2"))
			f.has(map[string]string{"a": "a:2"}) // there is a watch
			test.fail(c, f, reload)
			test.mend(c)
			direct, ctx := c.direct(0), testutils.Context(t)
			written, err := direct.Put(ctx, key("a.yaml"), service("a", "a:3"))
			xdstest.NoError(t, err)
			_, err = direct.Compact(ctx, written.Header.Revision)
			xdstest.NoError(t, err)
			f.has(map[string]string{"a": "a:3"})
		})
	}
}

// A store that is restored from a backup is read again, whether its revision is older or newer than that of the replica,
// which may have read the store once and asked for nothing since.
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
	s := c.open(prefix, 15*time.Second)
	f := follow(t, s)
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

// A replica starts without etcd from its last-good file, and takes up what changed when etcd is back.
func TestLastGoodFile(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	saved := filepath.Join(t.TempDir(), "last-good.json")
	keeps := func(o *feed.Options) { o.LastGood = saved }
	c.put(key("a.yaml"), service("a", "a:1"))
	s := c.open(prefix, time.Second)
	follow(t, s, keeps).stop()

	c.kill(0)
	fails := func(what string, s *store.Store, lastGood, text string) {
		t.Helper()
		_, err := feed.Open(testutils.Context(t), feed.Options{Store: s, LastGood: lastGood, Log: slog.New(slog.DiscardHandler)})
		cmdtest.ErrorHas(t, what, err, text)
	}
	fails("without etcd and a last-good file", s, "", "with --last-good")
	fails("without etcd and a last-good file that was written", s, filepath.Join(t.TempDir(), "new.json"), "new.json does not exist yet")
	f := follow(t, s, keeps)
	f.has(map[string]string{"a": "a:1"})
	f.logged("starting from the last-good file", saved)
	a := f.now()["a"]
	c.start(0)
	c.put(key("b.yaml"), service("b", "b:1"))
	f.has(map[string]string{"a": "a:1", "b": "b:1"})
	if f.now()["a"] != a {
		t.Error("a document did not change while etcd was gone, and its service is another one")
	}

	fails("with the last-good file of another store", c.open("/other", 0), saved, "is of the store etcd:/mesh/docs")
	f.stop()
	xdstest.NoError(t, os.WriteFile(saved, []byte("{"), 0o600))
	repaired := follow(t, s, keeps)
	repaired.has(map[string]string{"a": "a:1", "b": "b:1"})
	repaired.logged("the last-good file is damaged", saved)
	repaired.stop()
	if text, err := os.ReadFile(saved); err != nil || !strings.Contains(string(text), "b.yaml") {
		t.Errorf("the damaged file was not written again: it has %s (%v)", text, err)
	}
	xdstest.NoError(t, os.WriteFile(saved, []byte("{"), 0o600))
	c.members[0].cable.setCut(true)
	fails("without etcd and with half a last-good file", s, saved, "delete it")
	fails("with a last-good file in no folder", s, filepath.Join(t.TempDir(), "no-such-folder", "file"), "--last-good")
}
