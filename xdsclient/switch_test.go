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
	var tests []transcriptTest
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
