package dnsconfig

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/dnsserver"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

func TestConfigChangesReachTheChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.SetA(name, "127.0.0.1")
	w.publish(choice("a"))
	cc, r := w.build(name, fast)
	cc.await(t, "a", withConfig("a"))
	w.publish(choice("bad"), choice("b"))
	resolveUntil(t, cc, r, "b", withConfig("b"))
	w.publish(choice("c", `"clientHostname":["host-1"]`), choice("b"))
	resolveUntil(t, cc, r, "c", withConfig("c"))
}

func TestUnchangedConfigIsNotHandedOverAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.SetA(name, "127.0.0.1")
	w.publish(choice("a"))
	results := make(chan *Result, 1000)
	o := fast
	o.OnResult = func(r *Result) { results <- r }
	cc, r := w.build(name, o)
	cc.await(t, "a", withConfig("a"))
	for range 3 {
		<-results
		r.ResolveNow(resolver.ResolveNowOptions{})
	}
	<-results
	xdstest.Equal(t, "states after 4 equal look-ups", 1, len(cc.seen()))
}

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

func TestTargetsThatCannotBeResolved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, target := range []resolver.Target{
		targetOf(w.Addr(), ""), targetOf(w.Addr(), "a.test:"), targetOf(w.Addr(), "a:b:c"), targetOf("dns.test:", "a.test"),
	} {
		r, err := NewBuilder(fast).Build(target, new(fakeChannel), resolver.BuildOptions{})
		if err == nil {
			r.Close()
			t.Errorf("%s: no error", target.URL.String())
		} else if target.URL.Host == "dns.test:" && !strings.Contains(err.Error(), "dns.test:") {
			t.Errorf("error %v does not name the DNS server", err)
		}
	}
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
}

func TestDrawOfNoChannel(t *testing.T) {
	t.Parallel()
	for range 100 {
		if n := drawFor(resolver.BuildOptions{}); n < 0 || n > 99 {
			t.Fatalf("draw %d", n)
		}
	}
}
