package xdsclient

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdstest"
)

func (s *script) setSotWOnly(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sotwOnly = on
}

// A server that does not implement delta is spoken to in SotW, at once. Delta is tried again with backoff,
// while the SotW stream goes on, and used as soon as the server implements it.
func TestUnimplementedDeltaIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, server := newTestTypes(), newScript(t)
		server.setSotWOnly(true)
		c := server.collectionClient()
		a, _ := listen(t, c, types.clusters, "a")
		e, _ := watchCollection(t, c, types.clusters, collectionName)
		e.heard()
		s := server.stream()
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, node: true})
		a.silent()
		s.send(types.clusters, "1", "n1", cluster("a", "x"))
		a.cluster("x")
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, version: "1", nonce: "n1"})
		e.heard("collection: configuration")
		pass(14 * time.Second)
		second := time.Second
		xdstest.Equal(t, "streams began at", []time.Duration{0, 0, second, 3 * second, 7 * second}, server.attempts())

		server.setSotWOnly(false)
		probe := server.delta()
		synctest.Wait()
		s.send(types.clusters, "2", "n2", cluster("a", "y"))
		a.cluster("y") // The client goes on with SotW until it knows.
		d := server.delta()
		xdstest.Equal(t, "the time until the next delta stream", 20*second, server.attempts()[6])
		// What the versions of SotW mean in delta is unknown.
		d.expect(deltaWant{typ: types.clusters, sub: []string{"a", collectionName}, node: true})
		d.send(types.clusters, "n1", has("a", "1", cluster("a", "y")), has(collectionDir+"m", "1", cluster("", "m")))
		e.heard("member m = m", "collection")
		a.silent()
		if requests := len(probe.requests); requests > 0 {
			t.Errorf("%d requests on the stream that only tries", requests)
		}

		// It has answered, so that the next UNIMPLEMENTED is the first.
		server.setSotWOnly(true)
		d.end <- status.Error(codes.Unavailable, "restart")
		s = server.stream()
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, node: true})
		s.send(types.clusters, "1", "n1", cluster("a", "z"))
		a.cluster("z")
		server.setSotWOnly(false)
		began := time.Now()
		server.delta()
		xdstest.Equal(t, "tried again after", second, time.Since(began))
	})
}

// While no SotW stream stays open either, the next attempt is delta again.
func TestDeltaIsTriedFirstAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, server := newTestTypes(), newScript(t)
		server.setSotWOnly(true)
		server.setRefuse(status.Error(codes.Unavailable, "not yet"))
		c := server.deltaClient()
		a, _ := listen(t, c, types.clusters, "a")
		server.open()
		a.fault(KindUnreachable)
		server.setSotWOnly(false)
		server.setRefuse(nil)
		d := server.delta()
		d.expect(deltaWant{typ: types.clusters, sub: []string{"a"}, node: true})
		xdstest.Equal(t, "streams began at", []time.Duration{0, 0, time.Second}, server.attempts())
	})
}
