package xdsclient

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// core is a client with one channel that has no server: a test hands the
// responses to it.
type core struct {
	t       testing.TB
	c       *XDSClient
	channel *managementServer
}

func newCore(t testing.TB, features ...string) *core {
	t.Helper()
	return newCoreWith(t, testutils.ServerFeatures(features...))
}

func newCoreWith(t testing.TB, opts ...testutils.BootstrapOption) *core {
	t.Helper()
	c, err := New(parseBootstrap(t, "passthrough:///nowhere", opts...), Options{ResourceTimeout: time.Hour}) // a push may take long under load
	xdstest.NoError(t, err)
	server := c.config.Servers[0]
	ch := newManagementServer(c, server, "")
	c.channels[channelKey{server: server.Key()}] = ch
	t.Cleanup(c.Close)
	ch.opened()
	return &core{t, c, ch}
}

// response makes the response of a version of what the words say, as in a transcript.
func (k *core) response(types *testTypes, typ *ResourceType, version string, words ...string) []byte {
	k.t.Helper()
	server := &transcriptServer{delta: k.channel.server.HasFeature("delta")}
	return mustMarshal(k.t, server.response(&transcript{t: k.t, types: types}, typ, version, version, words))
}

// clusters makes a response with a version of the clusters from first to last, of about 250 bytes each.
func (k *core) clusters(types *testTypes, version string, first, last int, text func(int) string) []byte {
	mark := "="
	if k.channel.server.HasFeature("delta") {
		mark = "@" + version + "="
	}
	var words []string
	for i := first; i < last; i++ {
		name, env := k.locator(i)
		if env != "" {
			name += "{env=" + env + "}"
		}
		words = append(words, name+mark+text(i))
	}
	return k.response(types, types.clusters, version, words...)
}

// locator is that of one of many clusters: with locators, of one of two variants of a name.
func (k *core) locator(i int) (name, env string) {
	if k.channel.server.HasFeature(bootstrap.FeatureDynamicParameterConstraints) {
		return fmt.Sprint("cluster-", i/2), []string{"prod", "test"}[i%2]
	}
	return fmt.Sprint("cluster-", i), ""
}

// content is that of one of many clusters.
func content(i int) string { return fmt.Sprintf("%0180d", i) }

// but has one cluster have another text.
func but(odd int, other string) func(int) string {
	return func(i int) string {
		if i == odd {
			return other
		}
		return content(i)
	}
}

// push hands over a response, waits until the watchers are done with it, and reports whether it was accepted.
func (k *core) push(message []byte) bool {
	accepted, d, err := k.channel.receive(message)
	xdstest.NoError(k.t, err)
	if d != nil {
		<-d
		k.channel.delivered()
		k.channel.reading()
	}
	return accepted
}

// answer takes the requests that are due, as the writer does, and returns the
// bytes that go out.
func (k *core) answer() (sent int) {
	for message := k.request(); message != nil; message = k.request() {
		sent += len(message)
	}
	return sent
}

// request takes the next request that is due, or returns nil.
func (k *core) request() []byte {
	r, fresh, _ := k.channel.nextRequest()
	if r == nil {
		return nil
	}
	message, err := k.channel.dialect.Encode(r)
	xdstest.NoError(k.t, err)
	k.channel.sent(fresh)
	return message
}

// counter is a watcher that counts.
type counter struct{ values, errors int }

func (n *counter) ResourceChanged(_ any, err error, done func()) {
	if err != nil {
		n.errors++
	} else {
		n.values++
	}
	done()
}

func (n *counter) AmbientError(_ error, done func()) {
	n.errors++
	done()
}

func (k *core) watchClusters(types *testTypes, n int) *counter {
	heard := &counter{}
	for i := range n {
		name, env := k.locator(i)
		var constraints dynparam.Constraints
		if env != "" {
			constraints = choose("env=" + env)
		}
		k.c.WatchLocator(types.clusters, name, constraints, heard)
	}
	return heard
}

// A push of 10,000 unchanged resources decodes none, calls no watcher and is ACKed.
func TestPushOfUnchangedResourcesDecodesNone(t *testing.T) {
	const n = 10_000
	const variants = "dynamic_parameter_constraints"
	for _, features := range [][]string{nil, {"delta"}, {variants}, {variants, "delta"}} {
		t.Run(fmt.Sprint(features), func(t *testing.T) {
			types := newTestTypes()
			k := newCore(t, features...)
			heard := k.watchClusters(types, n)
			k.answer()
			message, changed := k.clusters(types, "1", 0, n, content), k.clusters(types, "2", 0, n, but(77, "changed"))
			if slices.Contains(features, "delta") {
				changed = k.clusters(types, "2", 77, 78, but(77, "changed"))
			}
			push := func() {
				if !k.push(message) {
					t.Error("an unchanged response was not ACKed")
				}
				k.answer()
			}
			push()
			if types.decoded.Load() != n || heard.values != n {
				t.Fatalf("the first push decoded %d resources and told of %d, want %d", types.decoded.Load(), heard.values, n)
			}
			for range 3 {
				push()
			}
			if got := k.c.Stats(); got.Unchanged != 3*n || got.Decoded != n || types.decoded.Load() != n {
				t.Errorf("Stats() is %+v, want %d unchanged and %d decoded", got, 3*n, n)
			}
			if heard.values != n || heard.errors != 0 {
				t.Errorf("watchers were called %d times for %d values", heard.values, n)
			}
			// Work that does not depend on the resources is all that is allocated.
			if got := testing.AllocsPerRun(5, push); got > 200 {
				t.Errorf("a push of %d unchanged resources allocates %v times", n, got)
			}
			k.push(changed)
			if got := types.decoded.Load() - n; got != 1 || heard.values != n+1 {
				t.Errorf("a push with one changed resource decoded %d and told of %d", got, heard.values-n)
			}
		})
	}
}

// TestSubscriptionsOfOneName: whichever come and go, each is found by its key, and by its name.
func TestSubscriptionsOfOneName(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	subs := newSubscriptions()
	var here []*subscription
	for range 2_000 {
		key := resourceKey{name: fmt.Sprint("name-", random.IntN(3)), variant: []string{"", "1", "2", "3", "4"}[random.IntN(5)]}
		if s := subs.get(key); s != nil {
			subs.remove(s)
			here = slices.DeleteFunc(here, func(x *subscription) bool { return x == s })
		} else {
			s = newSubscription(&resource{key: key}, nil)
			subs.add(s)
			here = append(here, s)
		}
		for _, s := range here {
			if got := subs.get(s.resource.key); got != s {
				t.Fatalf("the subscription to %v is %v", s.resource.key, got)
			}
			if first := subs.named([]byte(s.resource.key.name)); !slices.Contains(slices.Collect(first.siblings()), s) {
				t.Fatalf("the first of the subscriptions to %q is %v", s.resource.key.name, first)
			}
		}
		if n := len(slices.Collect(subs.all())); n != len(here) {
			t.Fatalf("there are %d subscriptions, want %d", n, len(here))
		}
	}
}
