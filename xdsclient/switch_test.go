package xdsclient

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

func TestSwitchesBetweenServers(t *testing.T) {
	tests := []transcriptTest{
		// The same bytes from another server wake no watcher and are not decoded, on the way down and on the
		// way up, whether or not the resource is wrapped.
		{name: "same bytes from another server", over: "SotW", servers: ofTwo, steps: `
			watch a b                    -> high: stream; high: req a b
			high: send 1 a=x b@1=x       -> high: ack 1 a b; a = x; b = x
			high: refuse
			high: break
			wait 1s
			watch n                      -> low: stream; low: req a b n
			low: send 7 a=x b=x n=low    -> low: ack 7 a b n; n = low
			decoded 3
			servers a low
			servers b low
			servers n low
			low: send 8 a@1=y b=x n=low  -> low: ack 8 a b n; a = y
			high: accept
			wait 2s                      -> high: stream; high: req a b n
			low: send 9 a=z b=x n=low    -> low: ack 9 a b n; a = z
			high: send 1 a=z b=x         -> high: ack 1 a b n; low: closed
			decoded 5
			servers a high
			servers b high
			servers n low
		`},
		// The lower server is lost while the higher one answers, but has nothing of use: that one is asked
		// again.
		{name: "lower server is lost", over: "SotW", servers: []string{"", "", ""}, steps: fallenBackSteps + `
			high: accept
			wait 1s               -> high: stream; high: req a b
			high: send 1 a!no     -> high: nack 1 a b @
			low: refuse
			low: break            -> a ambient: invalid of high
			last: streams 0
			low: streams 2
			# Its full state does not have b.
			wait 1m               -> b ambient: does not exist of high
			low: streams 2
		`},
		// gRFC A57: the resource timer runs where the resource is asked for. After a fallback that is the server
		// in use, and a timer that ran out elsewhere says nothing until its server takes over.
		{name: "resource timers", over: "SotW", servers: ofTwo, steps: fallenBackSteps + `
			watch n               -> low: ack 1 a b n
			wait 10s
			high: accept
			wait 4999ms
			wait 1ms              -> n: timeout of low; high: stream; high: req a b n
			wait 1m
			watch e:m             -> high: e.req m; low: e.req m
			wait 1s
			high: send 1 a=high b=low -> high: ack 1 a b n; low: closed; a = high
			wait 13999ms
			wait 1ms              -> e:m: timeout of high
			# Its full state does not have n either.
			wait 1m               -> n: does not exist of high
			low: streams 1
		`},
		// TestCheck found: what a server has sent in place of another stayed in use for ever, if that one came back without it.
		{name: "deleted while the server was away", over: "SotW", servers: []string{"fail_on_data_errors", "fail_on_data_errors"}, steps: `
			watch a               -> high: stream; high: req a
			high: send 1 a=high   -> high: ack 1 a; a = high
			high: refuse
			high: break
			watch b
			wait 1s               -> low: stream; low: req a b
			low: send 1 a=low b=low -> low: ack 1 a b; a = low; b = low
			high: accept
			wait 2s               -> high: stream; high: req a b
			high: send 2 b=high   -> high: ack 2 a b; low: closed; b = high
			wait 15s              -> a: does not exist of high
			high: send 3 b=high   -> high: ack 3 a b
		`},
		// What bytes mean may depend on the features of the server that sent them.
		{name: "same bytes from a server with other features", over: "SotW", servers: []string{"trusted_xds_server", ""}, steps: `
			watch a               -> high: stream; high: req a
			high: send 1 a=x      -> high: ack 1 a; a = x
			high: refuse
			high: break
			watch n
			wait 1s               -> low: stream; low: req a n
			low: send 1 a=x       -> low: ack 1 a n; a = x
			decoded 2
		`},
		// Versions and ACKs are per server. A server that is not the one in use is asked for everything
		// again, as one that is given a version does not send that again.
		{name: "versions", over: "SotW", servers: ofTwo, steps: `
			watch a                 -> high: stream; high: req a
			high: send 7 a=high     -> high: ack 7 a; a = high
			high: break
			# It is in use: the version is kept.
			wait 1s                 -> high: stream; high: req a @7
			high: refuse
			high: break
			watch b                 -> low: stream; low: req a b
			low: send 1 a=low b=low -> low: ack 1 a b; a = low; b = low
			high: accept
			wait 2s                 -> high: stream; high: req a b
			high: send 7 a=high b=high -> high: ack 7 a b; low: closed; a = high; b = high
		`},
		// A server takes over for an authority with a resource of that authority.
		{name: "take-over of one authority", over: "SotW", servers: ofTwo, steps: `
			high: refuse
			watch a o=dir/o            -> low: stream; low: req a dir/o
			low: send 1 a=low dir/o=low -> low: ack 1 a dir/o; a = low; o = low
			high: accept
			wait 1s                    -> high: stream; high: req a dir/o
			high: send 1 a=high        -> high: ack 1 a dir/o; low: ack 1 dir/o; a = high
			low: send 2 dir/o=low2     -> low: ack 2 dir/o; o = low2
			high: send 2 a=high dir/o=high -> high: ack 2 a dir/o; low: closed; o = high
		`},
		// An authority that nothing was watched of starts at the preferred server again.
		{name: "idle authority", over: "SotW", servers: ofTwo, steps: `
			high: refuse
			watch a               -> low: stream; low: req a
			stop a                -> low: closed
			high: accept
			watch a               -> high: stream; high: req a
			high: send 1 a=high   -> high: ack 1 a; a = high
			low: streams 1
		`},
	}
	// Whether a server that was unreachable still is shows when the stream that it has let the client open
	// ends or brings an answer.
	for name, then := range map[string]string{
		"open stream that brings an answer": "high: send 1 a=x b=x -> high: ack 1 a b; b = x",
		"open stream that ends":             "high: break -> low: stream; low: req a b",
	} {
		tests = append(tests, transcriptTest{name: name, over: "SotW", servers: ofTwo, steps: `
			watch a               -> high: stream; high: req a
			high: send 1 a=x      -> high: ack 1 a; a = x
			high: refuse
			high: break
			wait 1s
			high: accept
			wait 2s               -> high: stream; high: req a
			watch b               -> high: req a b @1
			low: streams 0
			` + then})
	}
	runTranscripts(t, tests)
}

// checkServers checks where the versions in use came from.
func checkServers(t *testing.T, c *XDSClient, want map[string]string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.entries() {
		if r.level.authority.key.newStyle {
			continue
		}
		if got := r.payload.server.URI; got != want[r.key.name] {
			t.Errorf("%q is from %s, want %s", r.key.name, got, want[r.key.name])
		}
	}
}

// A timer that ran out at a server that was not in use starts again when it takes
// over.
func TestExpiredTimerRestartsOnTakeOver(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		c, a, b, low := fallenBack(t, f, types)
		// While a watcher is busy, nothing more is asked of the lower server.
		synctest.Wait()
		b.keepDone = true
		low.send(types.clusters, "2", "n2", cluster("a", "low"), cluster("b", "low 2"))
		defer b.next().done()
		high := f[0].recover()
		n, _ := listen(t, c, types.clusters, "n")
		pass(time.Minute)
		n.silent()
		high.send(types.clusters, "1", "n1", cluster("a", "high"))
		a.cluster("high")
		began := time.Now()
		if err := n.fault(KindDoesNotExist); err.Server != uri(0) || time.Since(began) != 15*time.Second {
			t.Errorf("got %v after %v, want it from the higher server after 15 s", err, time.Since(began))
		}
	})
}

// A server that another authority uses is not closed when it is left, and what it
// says of resources that it is no longer asked for does not count.
func TestLeavingAServerThatAnotherAuthorityUses(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		f[0].setRefuse(errRefused)
		c := f.client(testutils.Authority("x", uri(1), nil))
		const name = "xdstp://x/envoy.config.cluster.v3.Cluster/o"
		other, a := listenBoth(t, c, types.clusters, name, "a")
		low := f[1].asked()
		synctest.Wait()
		low.send(types.clusters, "1", "n1", cluster("a", "low"), cluster(name, "1"))
		other.cluster("1")
		a.cluster("low")
		high := f[0].recover()
		// While a watcher is busy with a response of the lower server, that
		// server is not told anything.
		synctest.Wait()
		other.keepDone = true
		low.send(types.clusters, "2", "n2", cluster("a", "low"), cluster(name, "2"))
		busy := other.next()
		high.send(types.clusters, "1", "n1", cluster("a", "high"))
		a.cluster("high")
		synctest.Wait()
		other.keepDone = false
		low.send(types.clusters, "3", "n3", cluster("a", "low 3"), cluster(name, "3"))
		busy.done()
		other.cluster("3")
		a.silent()
		for {
			if r := low.request(); len(r.GetResourceNames()) == 1 && r.GetResourceNames()[0] == name {
				break
			}
		}
		a.silent()
		checkServers(t, c, map[string]string{"a": uri(0)})
	})
}

// gRFC A71, "Flapping": a primary that dies after its first resource each time
// costs the servers one attempt per step of the backoff, and watchers nothing.
func TestPrimaryThatDiesAfterEachAnswer(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		_, a, b, _ := fallenBack(t, f, types)
		f[0].setRefuse(nil)
		for range 5 {
			s := f[0].asked()
			s.send(types.clusters, "1", "n1", cluster("a", "high"))
			s.breakOff()
		}
		a.cluster("high")
		allSilent(a, b)
		began := f[0].attempts()
		if took, n := began[len(began)-1]-began[0], len(began); took < time.Duration(n-2)*time.Second {
			t.Errorf("%d streams were opened within %v", n, took)
		}
		f[1].opened(1)
	})
}

// Each switch subscribes in one request per type.
func TestSwitchIsOneRequestPerType(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		f[0].hold()
		f[0].setRefuse(errRefused)
		c := f.client()
		for i := range 100 {
			listen(t, c, types.clusters, fmt.Sprint("c", i))
			listen(t, c, types.endpoints, fmt.Sprint("e", i))
		}
		f[0].open()
		low := f[1].stream()
		for _, typ := range []*ResourceType{types.clusters, types.endpoints} {
			if r := low.request(); r.GetTypeUrl() != typ.TypeURL || len(r.GetResourceNames()) != 100 {
				t.Errorf("got a request for %d resources of type %s, want all of type %s", len(r.GetResourceNames()), r.GetTypeUrl(), typ.TypeURL)
			}
		}
		low.quiet()
	})
}

// A client may be closed in the middle of a fallback.
func TestCloseDuringFallback(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		c, a, _, low := fallenBack(t, f, types)
		f[0].setRefuse(nil)
		high := f[0].stream()
		c.Close()
		low.gone()
		high.gone()
		a.silent()
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := len(c.channels) + len(c.authorities); n > 0 {
			t.Errorf("a closed client has %d authorities and channels", n)
		}
	})
}

// origin is a value that knows which server it is of.
type origin struct {
	server *bootstrap.Server
	loads  *load.Store
	bound  bool
}

func (o *origin) ServerBound() bool { return o.bound }

// config_source.proto, "self": the server that the resource came from. When another
// server takes over and sends the same bytes, a value that depends on that is made
// again; others stay.
func TestServerBoundValueFollowsTheServer(t *testing.T) {
	for name, bound := range map[string]bool{"bound": true, "not bound": false} {
		t.Run(name, func(t *testing.T) {
			overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
				types.clusters.Decode = func(a *anypb.Any, o DecodeOptions) (any, error) {
					_, err := decodeCluster(a)
					return &origin{o.Server, o.Loads, bound}, err
				}
				c := f.client()
				a, _ := listen(t, c, types.clusters, "a")
				s := f[0].asked()
				s.send(types.clusters, "1", "n1", cluster("a", "1"))
				first := a.value().(*origin)
				s.request()
				s.send(types.clusters, "2", "n2", cluster("a", "1"))
				s.request()
				a.silent() // the same server, the same bytes

				f[0].setRefuse(errRefused)
				s.breakOff()
				pass(time.Minute)
				listen(t, c, types.clusters, "b")
				low := f[1].asked()
				low.send(types.clusters, "1", "n1", cluster("a", "1"), cluster("b", "1"))
				if !bound {
					low.request()
					a.silent()
					return
				}
				second := a.value().(*origin)
				if second.server != c.config.Servers[1] || second.loads == first.loads {
					t.Errorf("the value is of %v and counts load for it: %v", second.server, second.loads != first.loads)
				}
				// And back.
				s = f[0].recover()
				s.send(types.clusters, "3", "n1", cluster("a", "1"), cluster("b", "1"))
				if third := a.value().(*origin); third.server != c.config.Servers[0] || third.loads != first.loads {
					t.Errorf("the value is of %v and counts load for it: %v", third.server, third.loads == first.loads)
				}
			})
		})
	}
}
