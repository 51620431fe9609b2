package xdsclient

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/testutils"
)

// ofTwo are servers without features.
var ofTwo = []string{"", ""}

// fallenBackSteps make a client fall back: it has a and b from the lower server, as "low".
const fallenBackSteps = `
	high: refuse
	watch a b               -> low: stream; low: req a b
	low: send 1 a=low b=low -> low: ack 1 a b; a = low; b = low
`

func TestFallback(t *testing.T) {
	var tests []transcriptTest
	// A higher server that reports that a resource is not there, or not for this client, is believed.
	for code, follows := range map[string]string{
		"NotFound":         "; low: closed; a ambient: does not exist of high",
		"PermissionDenied": "; low: closed; a ambient: server error of high",
		"Unavailable":      "",
	} {
		tests = append(tests, transcriptTest{name: "answer of a higher server: " + code, over: "SotW", servers: ofTwo, steps: fallenBackSteps + `
			high: accept
			wait 1s               -> high: stream; high: req a b
			high: send 1 a?` + code + ` -> high: ack 1 a b` + follows})
	}
	runTranscripts(t, tests)
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
			overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
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

// gRFC A71: watchers are notified of connectivity failures after all servers have
// become unreachable. The error names each of them and its reason.
func TestAllServersUnreachable(t *testing.T) {
	overFleet(t, 3, func(t *testing.T, types *testTypes, f fleet) {
		c := f.client()
		cached, _ := listen(t, c, types.clusters, "cached")
		s := f[0].asked()
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
		middle := f[1].recover()
		a.silent()
		middle.send(types.endpoints, "1", "n1")
		cached.cluster("1")
		middle.send(types.clusters, "1", "n1", cluster("a", "middle"), cluster("late", "middle"))
		allHear("middle", a, late)
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
	overFleet(t, 3, func(t *testing.T, types *testTypes, f fleet) {
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
	overFleet(t, 1, func(t *testing.T, types *testTypes, f fleet) {
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
