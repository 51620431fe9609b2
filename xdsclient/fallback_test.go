package xdsclient

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/testutils"
)

var errRefused = status.Error(codes.Unavailable, "no more streams")

// fleet is a list of servers, the preferred one first.
type fleet []*script

// newFleet starts servers that are reached as passthrough:///0, 1 and so on. They
// let clients connect at once.
func newFleet(t *testing.T, n int) fleet {
	f := make(fleet, n)
	for i := range f {
		f[i] = newScript(t)
		close(f[i].gate)
	}
	return f
}

func uri(i int) string { return fmt.Sprint("passthrough:///", i) }

func (f fleet) dial(ctx context.Context, addr string) (net.Conn, error) {
	return f[addr[0]-'0'].dial(ctx, addr)
}

// client makes a client of the fleet.
func (f fleet) client(opts ...testutils.BootstrapOption) *XDSClient {
	t := f[0].t
	t.Helper()
	for i := 1; i < len(f); i++ {
		opts = append([]testutils.BootstrapOption{testutils.FurtherServer(uri(len(f) - i))}, opts...)
	}
	c, err := New(parseBootstrap(t, uri(0), opts...), WithDialOptions(grpc.WithContextDialer(f.dial)), WithBackoff(steady))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// untouched checks that no stream was opened at a server.
func (s *script) untouched() {
	s.t.Helper()
	synctest.Wait()
	if n := len(s.attempts()); n > 0 {
		s.t.Fatalf("%d streams were opened at a server that is not to be used", n)
	}
}

// gone checks that the client has left a stream.
func (s *scriptStream) gone() {
	s.t.Helper()
	synctest.Wait()
	if s.wire.Context().Err() == nil {
		s.t.Fatal("the stream is still open")
	}
}

// fallenBack returns a client whose primary server refuses streams, and which
// has the clusters "a" and "b" of the secondary, as version "low".
func fallenBack(t *testing.T, f fleet, types *testTypes) (c *XDSClient, a, b *ear, low *scriptStream) {
	t.Helper()
	f[0].setRefuse(errRefused)
	c = f.client()
	a, _ = listen(t, c, types.clusters, "a")
	b, _ = listen(t, c, types.clusters, "b")
	low = f[1].stream()
	check(t, low.request(), want{typ: types.clusters, names: []string{"a", "b"}, node: true})
	low.send(types.clusters, "1", "n1", cluster("a", "low"), cluster("b", "low"))
	a.cluster("low")
	b.cluster("low")
	check(t, low.request(), want{typ: types.clusters, names: []string{"a", "b"}, version: "1", nonce: "n1"})
	return c, a, b, low
}

// gRFC A71, "Change XdsClient to support fallback within each xDS authority": a
// connectivity failure (gRFC A57) and a watched resource that is not cached start
// the fallback. All watched resources are subscribed to at the next server.
// Watchers hear nothing of the failure.
func TestFallbackWhenUnreachableAndSomethingIsMissing(t *testing.T) {
	for name, fault := range map[string]struct{ before, after func(*script) }{
		"the stream ends without an answer":     {before: func(s *script) { s.setRefuse(errRefused) }},
		"the stream ends with OK and no answer": {after: func(s *script) { s.stream().end <- nil }},
		"the stream brings garbage":             {after: func(s *script) { s.stream().send(&ResourceType{}, "1", "n1") }},
		"the channel reports TRANSIENT_FAILURE": {before: func(s *script) { s.stop() }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				types, f := newTestTypes(), newFleet(t, 2)
				if fault.before != nil {
					fault.before(f[0])
				}
				f[0].hold()
				c := f.client()
				a, _ := listen(t, c, types.clusters, "a")
				e, _ := listen(t, c, types.endpoints, "e")
				f[0].open()
				if fault.after != nil {
					fault.after(f[0])
				}
				low := f[1].stream()
				check(t, low.request(), want{typ: types.clusters, names: []string{"a"}, node: true})
				check(t, low.request(), want{typ: types.endpoints, names: []string{"e"}})
				a.silent()
				low.send(types.clusters, "1", "n1", cluster("a", "low"))
				a.cluster("low")
				low.send(types.endpoints, "1", "n1", endpoints("e"))
				e.value()
			})
		})
	}
}

// gRFC A71: a server that is reachable is not left, whatever it does not say.
func TestNoFallbackFromAServerThatIsReachable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 2)
		c := f.client()
		a, _ := listen(t, c, types.clusters, "a")
		b, _ := listen(t, c, types.clusters, "b")
		s := f[0].stream()
		s.request()
		s.send(types.clusters, "1", "n1", badCluster("a", "x"))
		a.fault(KindInvalid)
		b.fault(KindDoesNotExist)
		// gRFC A57: a stream that ends after an answer is no failure.
		s.breakOff()
		f[0].stream()
		f[1].untouched()
	})
}

// gRFC A71: what is cached starts no fallback, and what is known not to exist is
// cached. As the servers below were not tried, watchers hear of no failure.
func TestNoFallbackWhileEverythingIsCached(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 2)
		c := f.client()
		a, _ := listen(t, c, types.clusters, "a")
		missing, _ := listen(t, c, types.clusters, "missing")
		s := f[0].stream()
		s.request()
		s.send(types.clusters, "1", "n1", cluster("a", "1"))
		a.cluster("1")
		missing.fault(KindDoesNotExist)
		s.request()
		f[0].setRefuse(errRefused)
		s.breakOff()
		pass(time.Minute)
		f[1].untouched()
		a.silent()
		missing.silent()
		late, stop := listen(t, c, types.clusters, "a")
		late.cluster("1")
		late.silent()
		stop()
		f[1].untouched()

		// A watch of something else changes that, for all that is watched
		// (mid-config update).
		b, _ := listen(t, c, types.clusters, "b")
		low := f[1].stream()
		check(t, low.request(), want{typ: types.clusters, names: []string{"a", "b", "missing"}, node: true})
		low.send(types.clusters, "1", "n1", cluster("a", "low"), cluster("b", "low"))
		a.cluster("low")
		b.cluster("low")
		missing.silent()
	})
}

// gRFC A71: cached is what can be used. A resource that was never valid is not.
func TestInvalidResourceIsNotCached(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 2)
		c := f.client()
		a, _ := listen(t, c, types.clusters, "a")
		s := f[0].stream()
		s.request()
		s.send(types.clusters, "1", "n1", badCluster("a", "x"))
		a.fault(KindInvalid)
		f[0].setRefuse(errRefused)
		s.breakOff()
		low := f[1].stream()
		low.request()
		low.send(types.clusters, "1", "n1", cluster("a", "low"))
		a.cluster("low")
	})
}

// gRFC A71: the client keeps trying the higher server. Once that sends a resource
// it is used, and the lower one is left.
func TestHigherServerTakesOverWithAResource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 2)
		_, a, b, low := fallenBack(t, f, types)
		f[0].setRefuse(nil)
		high := f[0].stream()
		check(t, high.request(), want{typ: types.clusters, names: []string{"a", "b"}, node: true})
		pass(time.Minute) // it is silent: no resource timer counts against it
		a.silent()
		b.silent()
		low.send(types.clusters, "2", "n2", cluster("a", "low 2"), cluster("b", "low"))
		a.cluster("low 2")
		low.request()
		high.send(types.endpoints, "1", "n1") // an answer, but no resource
		a.silent()
		high.send(types.clusters, "1", "n1", cluster("a", "high"))
		a.cluster("high")
		low.gone()
		// What it did not send stays in use.
		b.silent()
		check(t, high.request(), want{typ: types.clusters, names: []string{"a", "b"}, version: "1", nonce: "n1"})
		high.send(types.clusters, "2", "n2", cluster("a", "high"), cluster("b", "high"))
		b.cluster("high")
		a.silent()
		if n := len(f[1].attempts()); n != 1 {
			t.Errorf("%d streams were opened at the lower server, want 1", n)
		}
	})
}

// What a higher server says that is of no use is held until it says something that
// is: then it counts.
func TestHigherServerWithInvalidResourcesDoesNotTakeOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 2)
		_, a, b, low := fallenBack(t, f, types)
		f[0].setRefuse(nil)
		high := f[0].stream()
		high.request()
		high.send(types.clusters, "1", "n1", badCluster("a", "x"))
		check(t, high.request(), want{typ: types.clusters, names: []string{"a", "b"}, nonce: "n1", nack: true})
		a.silent()
		low.send(types.clusters, "2", "n2", cluster("a", "low 2"), cluster("b", "low"))
		a.cluster("low 2")
		high.send(types.clusters, "2", "n2", badCluster("a", "y"), cluster("b", "high"))
		b.cluster("high")
		if err := a.ambient(KindInvalid); err.Server != uri(0) || !strings.Contains(err.Error(), "y") {
			t.Errorf("got %v, want what the higher server said last", err)
		}
		low.gone()
	})
}

// A higher server that says that a resource is not there, or not for this client,
// is believed.
func TestHigherServerTakesOverWithItsLastWord(t *testing.T) {
	for _, code := range []codes.Code{codes.NotFound, codes.PermissionDenied, codes.Unavailable} {
		t.Run(code.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				types, f := newTestTypes(), newFleet(t, 2)
				c, a, b, low := fallenBack(t, f, types)
				f[0].setRefuse(nil)
				f[0].stream().request()
				synctest.Wait()
				c.mu.Lock()
				ch := c.channels[c.config.Servers[0].Key()]
				s := ch.typeState(types.clusters).subs["a"]
				fault := ch.fault(KindServer, s.resource, errTest)
				fault.Code = code
				ch.fail(s, setback{resourceMissing, fault, false}, nil)
				c.unlock()
				if code == codes.Unavailable {
					a.silent()
					low.quiet()
					return
				}
				a.ambient(KindServer)
				low.gone()
				b.silent()
			})
		})
	}
}

// gRFC A71: watchers are notified of connectivity failures after all servers have
// become unreachable. The error names each of them and its reason.
func TestAllServersUnreachable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 3)
		c := f.client()
		cached, _ := listen(t, c, types.clusters, "cached")
		s := f[0].stream()
		s.request()
		s.send(types.clusters, "1", "n1", cluster("cached", "1"))
		cached.cluster("1")
		f[0].setRefuse(status.Error(codes.Unavailable, "first"))
		f[1].setRefuse(status.Error(codes.Internal, "second"))
		f[2].setRefuse(status.Error(codes.Unavailable, "third"))
		s.breakOff()
		pass(time.Second)
		cached.silent()
		a, _ := listen(t, c, types.clusters, "a")
		err := a.fault(KindUnreachable)
		const text = `xDS Cluster "a": no management server is reachable: ` +
			`passthrough:///0: Unavailable: first; passthrough:///1: Internal: second; passthrough:///2: Unavailable: third ` +
			`(management servers passthrough:///0, passthrough:///1, passthrough:///2, node id "node-1"); ` +
			`check that the server runs, and server_uri and channel_creds in the xDS bootstrap`
		if err.Error() != text {
			t.Errorf("the error reads\n%s\nwant\n%s", err, text)
		}
		cached.ambient(KindUnreachable)
		late, _ := listen(t, c, types.clusters, "late")
		late.fault(KindUnreachable)
		pass(time.Minute)
		cached.silent() // told once

		// Another reason is news.
		f[1].setRefuse(status.Error(codes.Internal, "still second"))
		if err := a.fault(KindUnreachable); !strings.Contains(err.Error(), "still second") {
			t.Errorf("got %v, want the new reason in it", err)
		}
		cached.ambient(KindUnreachable)
		late.fault(KindUnreachable)

		// Any server ends it; one below the first is used, as it answers.
		f[1].setRefuse(nil)
		middle := f[1].stream()
		middle.request()
		a.silent()
		middle.send(types.endpoints, "1", "n1")
		cached.cluster("1")
		middle.send(types.clusters, "1", "n1", cluster("a", "middle"), cluster("late", "middle"))
		a.cluster("middle")
		late.cluster("middle")
		cached.silent()
		tries := len(f[2].attempts())
		pass(time.Minute)
		if n := len(f[2].attempts()); n != tries {
			t.Errorf("the lowest server was tried %d times after a higher one took over", n-tries)
		}
		if before := len(f[0].attempts()); before == 0 {
			t.Error("the highest server is not tried any more")
		}
	})
}

// gRFC A71 moves to "the next xDS control plane": one after the other, and not by
// way of one that is known to be unreachable.
func TestFallbackSkipsServersKnownToBeUnreachable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 3)
		for i := range 2 {
			f[i].setRefuse(errRefused)
		}
		c := f.client(testutils.Authority("x", uri(1), nil), testutils.Authority("y", "", nil))
		other, _ := listen(t, c, types.clusters, "xdstp://x/envoy.config.cluster.v3.Cluster/o")
		other.fault(KindUnreachable)
		synctest.Wait()
		a, _ := listen(t, c, types.clusters, "a")
		low := f[2].stream()
		check(t, low.request(), want{typ: types.clusters, names: []string{"a"}, node: true})
		low.send(types.clusters, "1", "n1", cluster("a", "low"))
		a.cluster("low")
		low.request()
		// Now all is known when the watch starts: it gets there at once.
		const name = "xdstp://y/envoy.config.cluster.v3.Cluster/b"
		b, _ := listen(t, c, types.clusters, name)
		synctest.Wait()
		check(t, low.request(), want{typ: types.clusters, names: []string{"a", name}, version: "1", nonce: "n1"})
		b.silent()
	})
}

// A server that is listed twice is one server.
func TestServerListedTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 1)
		f[0].setRefuse(errRefused)
		c := f.client(testutils.FurtherServer(uri(0)))
		a, stop := listen(t, c, types.clusters, "a")
		if err := a.fault(KindUnreachable); err.Server != uri(0) {
			t.Errorf("the error names %s, want the server once", err.Server)
		}
		stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := len(c.channels) + len(c.authorities); n > 0 {
			t.Errorf("%d channels and authorities are left", n)
		}
	})
}

// The same bytes from another server wake no watcher and are not decoded, on the
// way down and on the way up, whether or not the resource is wrapped.
func TestSameBytesFromAnotherServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 2)
		c := f.client()
		a, _ := listen(t, c, types.clusters, "a")
		b, _ := listen(t, c, types.clusters, "b")
		s := f[0].stream()
		s.request()
		s.send(types.clusters, "1", "n1", cluster("a", "1"), wrap(t, "b", cluster("b", "1")))
		a.cluster("1")
		b.cluster("1")
		s.request()
		f[0].setRefuse(errRefused)
		s.breakOff()
		synctest.Wait()
		n, _ := listen(t, c, types.clusters, "n")
		low := f[1].stream()
		low.request()
		low.send(types.clusters, "7", "n1", cluster("a", "1"), cluster("b", "1"), cluster("n", "low"))
		n.cluster("low")
		low.request()
		a.silent()
		b.silent()
		if got := types.decoded.Load(); got != 3 {
			t.Errorf("%d resources were decoded, want 3", got)
		}
		checkServers(t, c, map[string]string{"a": uri(1), "b": uri(1), "n": uri(1)})

		low.send(types.clusters, "8", "n2", wrap(t, "a", cluster("a", "2")), cluster("b", "1"), cluster("n", "low"))
		a.cluster("2")
		low.request()
		f[0].setRefuse(nil)
		high := f[0].stream()
		high.request()
		high.send(types.clusters, "1", "n1", cluster("a", "2"), cluster("b", "1"))
		high.request()
		a.silent()
		b.silent()
		low.gone()
		if got := types.decoded.Load(); got != 4 {
			t.Errorf("%d resources were decoded, want 4", got)
		}
		checkServers(t, c, map[string]string{"a": uri(0), "b": uri(0), "n": uri(1)})
	})
}

// checkServers checks where the versions in use came from.
func checkServers(t *testing.T, c *XDSClient, want map[string]string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.authorities[authorityKey{}].resources {
		if got := r.payload.server.URI; got != want[r.key.name] {
			t.Errorf("%q is from %s, want %s", r.key.name, got, want[r.key.name])
		}
	}
}

// What bytes mean may depend on the features of the server that sent them.
func TestSameBytesFromAServerWithOtherFeatures(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 2)
		c := f.client(testutils.ServerFeatures("trusted_xds_server"))
		a, _ := listen(t, c, types.clusters, "a")
		s := f[0].stream()
		s.request()
		s.send(types.clusters, "1", "n1", cluster("a", "1"))
		a.cluster("1")
		f[0].setRefuse(errRefused)
		s.breakOff()
		synctest.Wait()
		listen(t, c, types.clusters, "n")
		low := f[1].stream()
		low.request()
		low.send(types.clusters, "1", "n1", cluster("a", "1"))
		a.cluster("1")
		if got := types.decoded.Load(); got != 2 {
			t.Errorf("%d resources were decoded, want 2", got)
		}
	})
}

// Versions and ACKs are per server. A server that is not the one in use is asked
// for everything again, as one that is told a version does not repeat what it is.
func TestVersionsOnTheWayBackUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 2)
		c := f.client()
		a, _ := listen(t, c, types.clusters, "a")
		s := f[0].stream()
		s.request()
		s.send(types.clusters, "v7", "n1", cluster("a", "high"))
		a.cluster("high")
		s.request()
		s.breakOff()
		s = f[0].stream() // in use: the version is kept
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, version: "v7", node: true})
		f[0].setRefuse(errRefused)
		s.breakOff()
		synctest.Wait()
		b, _ := listen(t, c, types.clusters, "b")
		low := f[1].stream()
		check(t, low.request(), want{typ: types.clusters, names: []string{"a", "b"}, node: true})
		low.send(types.clusters, "v1", "n1", cluster("a", "low"), cluster("b", "low"))
		a.cluster("low")
		b.cluster("low")
		low.request()
		f[0].setRefuse(nil)
		s = f[0].stream()
		check(t, s.request(), want{typ: types.clusters, names: []string{"a", "b"}, node: true})
		s.send(types.clusters, "v7", "n1", cluster("a", "high"), cluster("b", "high"))
		a.cluster("high")
		b.cluster("high")
		check(t, s.request(), want{typ: types.clusters, names: []string{"a", "b"}, version: "v7", nonce: "n1"})
	})
}

// gRFC A57: the resource timer runs where the resource is asked for. After a
// fallback that is the server in use, and a timer that ran out elsewhere says
// nothing until its server takes over.
func TestResourceTimersRunAtTheServerInUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 2)
		c, a, b, _ := fallenBack(t, f, types)
		n, _ := listen(t, c, types.clusters, "n")
		pass(10 * time.Second)
		f[0].setRefuse(nil)
		high := f[0].stream()
		high.request()
		began := time.Now()
		if err := n.fault(KindDoesNotExist); err.Server != uri(1) {
			t.Errorf("got %v, want it from the server in use", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the timer fired %v after the higher server was asked, want it not to start anew", took)
		}
		m, _ := listen(t, c, types.endpoints, "m")
		low := f[1].attempts()
		pass(time.Second)
		high.send(types.clusters, "1", "n1", cluster("a", "high"), cluster("b", "low"))
		a.cluster("high")
		b.silent()
		n.silent()
		began = time.Now()
		if err := m.fault(KindDoesNotExist); err.Server != uri(0) {
			t.Errorf("got %v, want it from the server that took over", err)
		}
		if took := time.Since(began); took < 13*time.Second || took > 15*time.Second {
			t.Errorf("the timer fired after %v, want 15 s after the request at the higher server", took)
		}
		pass(time.Minute)
		a.silent()
		b.silent()
		n.silent()
		if len(f[1].attempts()) != len(low) {
			t.Error("the lower server was asked again")
		}
	})
}

// A timer that ran out at a server that was not in use starts anew when it takes
// over.
func TestLapsedTimerStartsAnewOnTakeOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 2)
		c, a, b, low := fallenBack(t, f, types)
		// While a watcher is busy, nothing more is asked of the lower server.
		synctest.Wait()
		b.keepDone = true
		low.send(types.clusters, "2", "n2", cluster("a", "low"), cluster("b", "low 2"))
		defer b.next().done()
		f[0].setRefuse(nil)
		high := f[0].stream()
		high.request()
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
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 2)
		f[0].setRefuse(errRefused)
		c := f.client(testutils.Authority("x", uri(1), nil))
		const name = "xdstp://x/envoy.config.cluster.v3.Cluster/o"
		other, _ := listen(t, c, types.clusters, name)
		a, _ := listen(t, c, types.clusters, "a")
		low := f[1].stream()
		low.request()
		synctest.Wait()
		low.send(types.clusters, "1", "n1", cluster("a", "low"), cluster(name, "1"))
		other.cluster("1")
		a.cluster("low")
		f[0].setRefuse(nil)
		high := f[0].stream()
		high.request()
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

// A server takes over for an authority with a resource of that authority.
func TestTakeOverIsPerAuthority(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 2)
		f[0].setRefuse(errRefused)
		c := f.client(testutils.Authority("x", "", nil))
		const name = "xdstp://x/envoy.config.cluster.v3.Cluster/o"
		a, _ := listen(t, c, types.clusters, "a")
		other, _ := listen(t, c, types.clusters, name)
		low := f[1].stream()
		low.request()
		synctest.Wait()
		low.send(types.clusters, "1", "n1", cluster("a", "low"), cluster(name, "low"))
		a.cluster("low")
		other.cluster("low")
		f[0].setRefuse(nil)
		high := f[0].stream()
		high.request()
		high.send(types.clusters, "1", "n1", cluster("a", "high"))
		a.cluster("high")
		synctest.Wait()
		low.send(types.clusters, "2", "n2", cluster(name, "low 2"))
		other.cluster("low 2")
		high.send(types.clusters, "2", "n2", cluster("a", "high"), cluster(name, "high"))
		other.cluster("high")
		low.gone()
	})
}

// An authority that nothing was watched of starts at the preferred server again.
func TestIdleAuthorityStartsFromTheTop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 2)
		f[0].setRefuse(errRefused)
		c := f.client()
		_, stop := listen(t, c, types.clusters, "a")
		low := f[1].stream()
		stop()
		low.gone()
		f[0].setRefuse(nil)
		a, _ := listen(t, c, types.clusters, "a")
		high := f[0].stream()
		high.request()
		high.send(types.clusters, "1", "n1", cluster("a", "high"))
		a.cluster("high")
		if n := len(f[1].attempts()); n != 1 {
			t.Errorf("%d streams were opened at the lower server, want 1", n)
		}
	})
}

// Whether a server that was unreachable still is shows when the stream that it
// has let the client open ends or brings an answer.
func TestNoFallbackWhileAStreamIsOpen(t *testing.T) {
	for _, answers := range []bool{true, false} {
		t.Run(fmt.Sprint("answers: ", answers), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				types, f := newTestTypes(), newFleet(t, 2)
				c := f.client()
				a, _ := listen(t, c, types.clusters, "a")
				s := f[0].stream()
				s.request()
				s.send(types.clusters, "1", "n1", cluster("a", "1"))
				a.cluster("1")
				f[0].setRefuse(errRefused)
				s.breakOff()
				pass(2 * time.Second)
				f[0].setRefuse(nil)
				s = f[0].stream()
				b, _ := listen(t, c, types.clusters, "b")
				f[1].untouched()
				if answers {
					s.send(types.clusters, "1", "n1", cluster("a", "1"), cluster("b", "1"))
					b.cluster("1")
					f[1].untouched()
					return
				}
				s.end <- errRefused
				low := f[1].stream()
				check(t, low.request(), want{typ: types.clusters, names: []string{"a", "b"}, node: true})
				b.silent()
			})
		})
	}
}

// gRFC A71, "Flapping": a primary that dies after its first resource each time
// costs the servers one attempt per step of the backoff, and watchers nothing.
func TestPrimaryThatDiesAfterEachAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 2)
		_, a, b, _ := fallenBack(t, f, types)
		f[0].setRefuse(nil)
		for range 5 {
			s := f[0].stream()
			s.request()
			s.send(types.clusters, "1", "n1", cluster("a", "high"))
			s.breakOff()
		}
		a.cluster("high")
		a.silent()
		b.silent()
		began := f[0].attempts()
		if took, n := began[len(began)-1]-began[0], len(began); took < time.Duration(n-2)*time.Second {
			t.Errorf("%d streams were opened within %v", n, took)
		}
		if n := len(f[1].attempts()); n != 1 {
			t.Errorf("%d streams were opened at the lower server, want 1: all is cached", n)
		}
	})
}

// The lower server is lost while the higher one answers, but has nothing of use:
// that one is asked again.
func TestLowerServerLostWhileTheHigherOneAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 3)
		_, a, b, low := fallenBack(t, f, types)
		f[0].setRefuse(nil)
		high := f[0].stream()
		high.request()
		high.send(types.clusters, "1", "n1", badCluster("a", "x"))
		high.request()
		f[1].setRefuse(errRefused)
		low.breakOff()
		if err := a.ambient(KindInvalid); err.Server != uri(0) {
			t.Errorf("got %v, want what the higher server said", err)
		}
		b.silent()
		f[2].untouched()
		tries := len(f[1].attempts())
		pass(time.Minute)
		if len(f[1].attempts()) != tries {
			t.Error("the lower server is still tried")
		}
	})
}

// Each switch subscribes in one request per type.
func TestSwitchIsOneRequestPerType(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 2)
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
	bubble(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 2)
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
