package xdsclient

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// A watch that ends while its watcher is called does not hold the stream up, nor does one that waits behind it.
func TestStopCountsAsDone(t *testing.T) {
	(&transcriptTest{over: "SotW", steps: "watch e:b called=a! waiting=a -> stream; req a; e.req b", then: func(x *transcript) {
		release := make(chan struct{})
		x.watches["called"].ear.on = func(heard) { <-release }
		x.run(`send 1 a=1 -> ack 1 a
			send e:1 b
			stop waiting called -> e.ack 1 b`)
		close(release)
		x.run(`wait 0s -> ack 1; called = 1; e:b =
			done called`) // too late to matter
	}}).run(t)
}

func TestStopFromWithinTheWatcher(t *testing.T) {
	(&transcriptTest{over: "SotW", steps: "watch e:b a -> stream; req a; e.req b", then: func(x *transcript) {
		w := x.watches["a"]
		w.ear.on = func(heard) { w.stop(); w.stop() }
		x.run(`send 1 a=1 -> ?ack 1 a; ack 1; a = 1
			send 2 a=2 -> ack 2`)
	}}).run(t)
}

// The calls to all watchers of a client are serial: package dpdswrapper has no lock for them.
func TestCallsToWatchersAreSerial(t *testing.T) {
	(&transcriptTest{over: "SotW", then: func(x *transcript) {
		e, other := newEar(t), newEar(t)
		var within atomic.Int32
		e.on = func(heard) {
			if within.Add(1) != 1 {
				t.Error("a watcher was called while one was called")
			}
			time.Sleep(time.Second)
			within.Add(-1)
		}
		other.on = e.on
		x.c.Batch(func() {
			x.c.Watch(x.types.clusters, "a", e)
			x.c.ForTarget("target").WatchLocator(x.types.clusters, "b", dynparam.Constraints{}, other)
		})
		x.run("wait 0s -> stream; req a b\nsend 1 a=1 b=1 -> ack 1 a b\nwait 3s")
		xdstest.Equal(t, "calls", 2, len(e.calls)+len(other.calls))
	}}).run(t)
}

// A watcher that is slow is told the latest, not everything.
func TestSlowWatcherGetsTheFinalState(t *testing.T) {
	(&transcriptTest{over: "SotW", steps: "watch e:b a -> stream; req a; e.req b", then: func(x *transcript) {
		release := make(chan struct{})
		x.watches["e:b"].ear.on = func(heard) { <-release }
		x.run("send e:1 b -> e.ack 1 b") // the dispatcher is stuck in e:b
		x.c.mu.Lock()
		r := x.c.authorities[authorityKey{}].resources[resourceKey{typ: x.types.clusters, name: "a"}]
		r.accept(&payload{value: cluster("a", "1")}, stamp{}, nil)
		r.fail(&Error{Kind: KindInvalid, Err: errTest, state: StateNACKed}, nil)
		r.accept(&payload{value: cluster("a", "2")}, stamp{}, nil)
		r.fail(&Error{Kind: KindDoesNotExist, Err: errTest, state: StateDoesNotExist, withdraws: true}, nil)
		r.accept(&payload{value: cluster("a", "3")}, stamp{}, nil)
		r.fail(&Error{Kind: KindInvalid, Err: errTest, state: StateNACKed}, nil)
		x.c.mu.Unlock()
		close(release)
		x.run("wait 0s -> e:b =; a = 3; a ambient: invalid")
	}}).run(t)
}
