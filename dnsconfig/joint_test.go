package dnsconfig

import (
	"errors"
	"runtime"
	"testing"

	"github.com/miekg/dns"
	"google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/dnsserver"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

func TestNoAddressesDoNotWaitForTheConfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cc := &fakeChannel{refuse: errors.New("no addresses")}
	w.buildFor(cc, name, fast, resolver.BuildOptions{})
	s := cc.await(t, "no addresses", anything)
	xdstest.Equal(t, "addresses", 0, len(addressesOf(s)))
	// The "dns" resolver sees that the channel refuses, and tries again.
	w.Wait(testutils.Context(t), t, name, dns.TypeA, 2)
}

func TestAddressErrorsAreReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Fault(name, dnsserver.Code(dns.RcodeServerFailure))
	cc, _ := w.build(name, fast)
	cc.Await(t, "an error to be reported", func() bool { return len(cc.errs) > 0 })
}

// recorder stands for the metrics recorder of a channel.
type recorder struct {
	stats.MetricsRecorder
	_ [8]byte
}

// TestDrawIsMadeOnceForAChannel: a channel is built a resolver after each idle
// period, and keeps its draw.
func TestDrawIsMadeOnceForAChannel(t *testing.T) {
	t.Parallel()
	seen := map[int]int{}
	var channels []*recorder
	for range 2000 {
		c := new(recorder)
		channels = append(channels, c)
		opts := resolver.BuildOptions{MetricsRecorder: c}
		n := drawFor(opts)
		seen[n]++
		if n < 0 || n > 99 {
			t.Fatalf("draw %d", n)
		}
		for range 3 {
			if again := drawFor(opts); again != n {
				t.Fatalf("a channel drew %d, and then %d", n, again)
			}
		}
	}
	// 2000 draws of 100 numbers: 20 each, with a standard deviation of 4.5.
	for n := range 100 {
		if seen[n] == 0 || seen[n] > 50 {
			t.Errorf("%d was drawn %d times of 2000", n, seen[n])
		}
	}
	runtime.KeepAlive(channels)
	if n := drawFor(resolver.BuildOptions{}); n < 0 || n > 99 {
		t.Errorf("without a channel, draw %d", n)
	}
}
