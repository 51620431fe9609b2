package xdsclient

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/dynxds/dynxds/internal/bounds"
)

// A server that sends distinct versions as fast as it can costs a quarter of the time, once the burst is
// used up. The last version comes through when it stops.
func TestFloodOfDistinctResponses(t *testing.T) {
	(&transcriptTest{steps: "works 500ms\nwatch a -> stream; req +a", then: func(x *transcript) {
		const each = 500 * time.Millisecond
		long := "a=" + strings.Repeat("x", 1<<20)
		start := time.Now()
		i := 0
		send := func(word string) {
			i++
			x.servers[0].send(x, fmt.Sprint(i), []string{word})
		}
		for time.Since(start) < 40*time.Second {
			send(fmt.Sprint(long, i))
		}
		took := time.Since(start)
		work := time.Duration(x.c.Stats().Decoded) * each
		if allowed := bounds.ResponseBurst + took/bounds.ResponseShare; work > allowed+2*each || work < allowed/2 {
			t.Errorf("%v of work within %v, want some %v", work, took, allowed)
		}
		send("a=last")
		for x.watches["a"].ear.next().value.(*clusterv3.Cluster).GetAltStatName() != "last" {
		}
		if late := time.Since(start) - took; late > 15*time.Second {
			t.Errorf("the last version took %v", late)
		}
	}}).run(t)
}

// Hundreds of small changes a second arrive at once, for as long as it may be.
func TestManySmallChangesAreNotDelayed(t *testing.T) {
	(&transcriptTest{steps: "works 1ms\nwatch a -> stream; req +a", then: func(x *transcript) {
		for i := range 60 * 200 {
			x.run(fmt.Sprintf("send %d a=%[1]d\nwait 1ms -> ack %[1]d; a = %[1]d\nwait 4ms", i))
		}
	}}).run(t)
}

// The start of a large mesh is not delayed.
func TestStartIsNotDelayed(t *testing.T) {
	(&transcriptTest{over: "delta", steps: "works 200us", then: func(x *transcript) {
		const responses, per, each = 100, 100, 200 * time.Microsecond
		all := newEar(t)
		all.calls = make(chan heard, responses*per)
		x.c.Batch(func() {
			for i := range responses * per {
				t.Cleanup(x.c.Watch(x.types.clusters, fmt.Sprint(i), all))
			}
		})
		synctest.Wait()
		x.events()
		start := time.Now()
		for i := range responses {
			var words []string
			for j := range per {
				words = append(words, fmt.Sprintf("%d=x", i*per+j))
			}
			x.servers[0].send(x, fmt.Sprint(i), words)
		}
		for range responses * per {
			all.next()
		}
		if took, want := time.Since(start), responses*per*each; took > want+100*time.Millisecond {
			t.Errorf("%d resources took %v, want the %v of their decoder", responses*per, took, want)
		}
	}}).run(t)
}

// A server that opens the stream again and again has no further burst.
func TestWorkIsCountedAcrossStreams(t *testing.T) {
	(&transcriptTest{over: "SotW", steps: "works 1s\nwatch a -> stream; req a", then: func(x *transcript) {
		start, n := time.Now(), 0
		for time.Since(start) < time.Minute {
			for range 3 {
				n++
				x.do(x.c, fmt.Sprintf("send %d a=%[1]d", n))
				x.watches["a"].ear.next()
			}
			x.do(x.c, "break")
			for x.servers[0].stream == nil {
				pass(time.Second / 10)
				x.servers[0].events(x)
			}
		}
		if n > 35 {
			t.Errorf("%d s of work in a minute, want some 25", n)
		}
	}}).run(t)
}
