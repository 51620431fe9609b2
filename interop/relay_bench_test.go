//go:build unix

package interop_test

import (
	"flag"
	"runtime"
	"syscall"
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
	heap, stacks := relayMemory()
	var heapWithAll, stacksWithAll float64
	begin := time.Now()
	l.open(addr)
	openHeap, openStacks := relayMemory()
	b.Logf("%d streams without a subscription: %.0f B of heap and %.0f B of stacks each", size.clients,
		(openHeap-heap)/float64(size.clients), (openStacks-stacks)/float64(size.clients))
	l.beginAll(func() { heapWithAll, stacksWithAll = relayMemory() })
	heapOfOne, stacksOfOne := relayMemory()
	goroutines := runtime.NumGoroutine()
	l.widen()
	all := time.Since(begin)
	heapOfAll, stacksOfAll := relayMemory()

	others := float64(size.clients - 1)
	figures := l.measureChanges(b)
	figures["heap-B/resource"] = (heapWithAll - openHeap) / float64(size.of)
	figures["B/client"] = (openHeap + openStacks - heap - stacks + heapOfOne + stacksOfOne - heapWithAll - stacksWithAll) / others
	figures["B/client-and-resource"] = (heapOfAll + stacksOfAll - heapOfOne - stacksOfOne) / others / float64(size.each-1)
	figures["goroutines/client"] = float64(goroutines) / others
	figures["s-until-all-have-all"] = all.Seconds()
	report(b, figures)
}

// measureChanges measures changes of the resource that all have.
func (l *relayLoad) measureChanges(b *testing.B) map[string]float64 {
	l.change() // Buffers have their size then.
	l.rest(b)
	cpu := cpuTime(b)
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
	l.rest(b)
	return map[string]float64{
		"ms-until-the-last-client":         total.Seconds() * 1e3 / float64(n),
		"ms-until-the-last-client-at-most": longest.Seconds() * 1e3,
		"cpu-ms/op":                        (cpuTime(b) - cpu).Seconds() * 1e3 / float64(n),
	}
}

// rest returns when the process has used almost no CPU time for a while: the ACKs are with the server.
func (l *relayLoad) rest(b *testing.B) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for last := cpuTime(b); ; {
		<-ticker.C
		now := cpuTime(b)
		if now-last < time.Millisecond {
			return
		}
		last = now
	}
}

// cpuTime is what the process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	xdstest.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
