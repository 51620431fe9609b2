//go:build unix

package interop_test

import (
	"flag"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// smallRelay is the size for tests.
var smallRelay = relaySize{clients: 250, each: 20, of: 100}

// relayClients is how many clients BenchmarkRelay has.
var relayClients = flag.Int("relay.clients", 10_000, "how many clients of a relay are measured")

// Every client receives each resource once, and each change, from a relay as from go-control-plane's
// server.
func TestRelayLoad(t *testing.T) {
	for source := range sources {
		xdstest.Parallel(t, source, func(t *testing.T) {
			l, addr := startRelayLoad(t, source, smallRelay)
			l.open(addr)
			l.beginAll(func() {})
			l.widen()
			for range 5 {
				l.change()
			}
		})
	}
}

// BenchmarkRelay is a relay with many clients, and go-control-plane's server with the same: memory of
// both ends, time until the last client has a change of the resource that all are subscribed to, and CPU time of
// the process for it.
func BenchmarkRelay(b *testing.B) {
	size := relaySize{clients: *relayClients, each: 1_000, of: 10_000}
	b.Run(size.String(), func(b *testing.B) {
		for _, source := range []string{"go-control-plane", "relay"} {
			b.Run("peer="+source, func(b *testing.B) { benchRelay(b, source, size) })
		}
	})
}

func benchRelay(b *testing.B, source string, size relaySize) {
	l, addr := startRelayLoad(b, source, size)
	before, begin := held(), time.Now()
	l.open(addr)
	var withAll usage
	opened := held()
	l.beginAll(func() { withAll = held() })
	ofOne := held()
	l.widen()
	all := time.Since(begin)
	ofAll := held()

	others := float64(size.clients - 1)
	figures := l.measureChanges(b)
	figures["heap-B/resource"] = (float64(withAll.Heap) - float64(opened.Heap)) / float64(size.of)
	figures["B/client"] = (opened.memory() - before.memory() + ofOne.memory() - withAll.memory()) / others
	figures["B/client-and-resource"] = (ofAll.memory() - ofOne.memory()) / others / float64(size.each-1)
	figures["goroutines/client"] = float64(ofOne.Goroutines) / others
	figures["s-until-all-have-all"] = all.Seconds()
	report(b, figures)
}

// measureChanges measures changes of the resource that all have.
func (l *relayLoad) measureChanges(b *testing.B) map[string]float64 {
	l.change() // Buffers have their size then.
	// The ACKs are with the server when the process is at rest.
	cpu := atRest(used).CPU
	var total, longest time.Duration
	n := 0
	for b.Loop() {
		begin := time.Now()
		l.change()
		took := time.Since(begin)
		total += took
		longest = max(longest, took)
		n++
	}
	cpu = atRest(used).CPU - cpu
	return map[string]float64{
		"ms-until-the-last-client":         total.Seconds() * 1e3 / float64(n),
		"ms-until-the-last-client-at-most": longest.Seconds() * 1e3,
		"cpu-ms/op":                        cpu.Seconds() * 1e3 / float64(n),
	}
}
