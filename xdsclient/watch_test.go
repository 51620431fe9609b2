package xdsclient

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// A watch that ends while its watcher owes a done does not hold the stream up,
// whether the watcher was called or not.
func TestStopCountsAsDone(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		b, _ := listen(t, c, types.endpoints, "b")
		called, waiting := newEar(t), newEar(t)
		called.keepDone = true
		release := make(chan struct{})
		called.on = func(heard) { <-release }
		stopCalled := c.Watch(types.clusters, "a", called)
		stopWaiting := c.Watch(types.clusters, "a", waiting)
		s := server.asked()
		s.request()
		s.send(types.clusters, "1", "n1", cluster("a", "1"))
		s.send(types.endpoints, "1", "n2", endpoints("b"))
		synctest.Wait() // called is within its call, waiting behind it
		stopWaiting()
		stopCalled()
		close(release)
		b.value()
		h := called.next()
		h.done() // too late to matter
		waiting.silent()
	})
}

func TestStopFromWithinTheWatcher(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		listen(t, c, types.endpoints, "b")
		e := newEar(t)
		var stop func()
		e.on = func(heard) { stop(); stop() }
		stop = c.Watch(types.clusters, "a", e)
		s := server.asked()
		s.request()
		s.send(types.clusters, "1", "n1", cluster("a", "1"))
		e.cluster("1")
		// The ACK may come first, or go along.
		for len(s.request().GetResourceNames()) > 0 {
		}
		s.send(types.clusters, "2", "n2", cluster("a", "2"))
		s.request()
		e.silent()
	})
}

// The calls to one watcher are serial.
func TestCallsToAWatcherAreSerial(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		e := newEar(t)
		var within atomic.Int32
		e.on = func(heard) {
			if within.Add(1) != 1 {
				t.Error("the watcher was called while it was called")
			}
			synctest.Wait()
			within.Add(-1)
		}
		c.Watch(types.clusters, "a", e)
		c.Watch(types.clusters, "b", e)
		s := server.asked()
		s.send(types.clusters, "1", "n1", cluster("a", "1"), cluster("b", "1"))
		s.request()
		e.value()
		e.value()
	})
}

// A watcher that is slow is told the latest, not everything.
func TestSlowWatcherGetsTheFinalState(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		blocker := newEar(t)
		release := make(chan struct{})
		blocker.on = func(heard) { <-release }
		c.Watch(types.endpoints, "b", blocker)
		a, _ := listen(t, c, types.clusters, "a")
		s := server.asked()
		s.request()
		s.send(types.endpoints, "1", "n0", endpoints("b"))
		synctest.Wait() // the dispatcher is stuck in blocker
		c.mu.Lock()
		w := c.authorities[authorityKey{}].resources[resourceKey{typ: types.clusters, name: "a"}].watches[0]
		r := w.resource
		r.accept(&payload{value: cluster("a", "1")}, stamp{}, nil)
		r.fail(&Error{Kind: KindInvalid, Err: errTest, state: StateNACKed}, nil)
		r.accept(&payload{value: cluster("a", "2")}, stamp{}, nil)
		r.fail(&Error{Kind: KindDoesNotExist, Err: errTest, state: StateDoesNotExist, withdraws: true}, nil)
		r.accept(&payload{value: cluster("a", "3")}, stamp{}, nil)
		r.fail(&Error{Kind: KindInvalid, Err: errTest, state: StateNACKed}, nil)
		c.mu.Unlock()
		close(release)
		a.cluster("3")
		a.ambient(KindInvalid)
		a.silent()
	})
}

// Stopping all watches, closing and releasing leave nothing behind, even if a
// watcher never was done; goleak and the bubble would notice.
func TestCloseEndsEverything(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		e := newEar(t)
		e.keepDone = true
		stop := c.Watch(types.clusters, "a", e)
		s := server.asked()
		s.send(types.clusters, "1", "n1", cluster("a", "1"))
		h := e.next()
		c.Close()
		h.done()
		c.Close()
		stop()
		late, stopLate := listen(t, c, types.clusters, "a")
		late.silent()
		stopLate()
		if n := len(c.authorities) + len(c.channels); n != 0 {
			t.Errorf("a closed client has %d authorities and channels", n)
		}
	})
}
