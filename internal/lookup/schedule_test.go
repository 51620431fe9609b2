package lookup_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/lookup"
)

// fakes resolves names that end in ".fake:80", and gRPC's resolver the others. Its tests
// run in synctest bubbles and not in parallel.
var fakes = &fakeDNS{Builder: grpcresolver.Get("dns")}

type fakeDNS struct {
	grpcresolver.Builder

	mu sync.Mutex
	// reply answers a look-up; one for which it is nil has no answer.
	reply func(cc grpcresolver.ClientConn)
	// begun are the times of the look-ups, open how many of them are not closed.
	begun []time.Time
	open  int
	// hung are those without an answer.
	hung []grpcresolver.ClientConn
}

func (d *fakeDNS) Build(target grpcresolver.Target, cc grpcresolver.ClientConn, opts grpcresolver.BuildOptions) (grpcresolver.Resolver, error) {
	if !strings.HasSuffix(target.Endpoint(), ".fake:80") {
		return d.Builder.Build(target, cc, opts)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begun = append(d.begun, time.Now())
	d.open++
	if d.reply == nil {
		d.hung = append(d.hung, cc)
	} else {
		go d.reply(cc)
	}
	return fakeName{d}, nil
}

// reset begins a test.
func (d *fakeDNS) reset(reply func(cc grpcresolver.ClientConn)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reply, d.begun, d.hung, d.open = reply, nil, nil, 0
}

func (d *fakeDNS) counts() (begun, open int) {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.begun), d.open
}

type fakeName struct{ d *fakeDNS }

func (fakeName) ResolveNow(grpcresolver.ResolveNowOptions) {}

func (n fakeName) Close() {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	n.d.open--
}

func oneAddress(cc grpcresolver.ClientConn) {
	_ = cc.UpdateState(grpcresolver.State{Addresses: []grpcresolver.Address{{Addr: "10.0.0.1:80"}}})
}

func ignore(lookup.Result) {}

func TestANameIsLookedUpNoMoreOftenThanTheLimitsSay(t *testing.T) {
	for _, tc := range []struct {
		given  string
		limits lookup.Limits
		ask    bool
		want   []time.Duration // when, in the first minute and a half
	}{
		{"no demand", lookup.Limits{Least: 30 * time.Second}, false, []time.Duration{0}},
		{"constant demand", lookup.Limits{Least: 30 * time.Second}, true, []time.Duration{0, 30 * time.Second, 60 * time.Second}},
		{"a refresh", lookup.Limits{Least: time.Second, Refresh: 40 * time.Second}, false, []time.Duration{0, 40 * time.Second, 80 * time.Second}},
		{"a refresh that is too frequent", lookup.Limits{Least: 50 * time.Second, Refresh: time.Second}, false, []time.Duration{0, 50 * time.Second}},
		{"a refresh, and demand", lookup.Limits{Least: 50 * time.Second, Refresh: 80 * time.Second}, true, []time.Duration{0, 50 * time.Second}},
	} {
		t.Run(tc.given, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fakes.reset(oneAddress)
				begin := time.Now()
				w, _ := lookup.Start("limits.fake:80", tc.limits, ignore)
				for range 850 {
					synctest.Wait()
					if tc.ask {
						w.ResolveNow()
					}
					time.Sleep(100 * time.Millisecond)
				}
				w.Stop()
				fakes.counts()
				if len(fakes.begun) != len(tc.want) {
					t.Fatalf("%d look-ups, want %d", len(fakes.begun), len(tc.want))
				}
				for i, at := range fakes.begun {
					if got := at.Sub(begin); got != tc.want[i] {
						t.Errorf("look-up %d began after %v, want %v", i, got, tc.want[i])
					}
				}
			})
		})
	}
}

func TestIntervalsAfterFailuresGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes.reset(func(cc grpcresolver.ClientConn) { cc.ReportError(errors.New("the server is away")) })
		w, _ := lookup.Start("fails.fake:80", lookup.Limits{}, ignore)
		for range 2000 {
			time.Sleep(time.Second)
			synctest.Wait()
			w.ResolveNow() // changes nothing
		}
		w.Stop()
		fakes.counts()
		want := 1.6
		for i := 1; i < len(fakes.begun); i++ {
			got := fakes.begun[i].Sub(fakes.begun[i-1]).Seconds()
			if got < 0.79*want || got > 1.21*want {
				t.Errorf("look-up %d began %.1f s after the one before, want %.1f s, 20%% more or less", i, got, want)
			}
			want = min(120, want*1.6)
		}
		if n := len(fakes.begun); n < 18 || n > 30 {
			t.Errorf("%d look-ups in 2,000 s", n)
		}
	})
}

// Look-ups are queued, so that a cluster of ten thousand names costs no more goroutines
// than one of a hundred.
func TestConcurrentLookUpsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const names = 10 * lookup.MaxLookups
		fakes.reset(nil)
		watches := make([]*lookup.Watch, names)
		for i := range watches {
			watches[i], _ = lookup.Start(fmt.Sprintf("n%d.fake:80", i), lookup.Limits{Least: time.Hour}, ignore)
		}
		if begun, open := fakes.counts(); begun != lookup.MaxLookups || open != begun {
			t.Errorf("%d look-ups began, %d are under way, want %d", begun, open, lookup.MaxLookups)
		}
		for _, cc := range fakes.hung[:7] {
			oneAddress(cc)
		}
		if begun, open := fakes.counts(); begun != lookup.MaxLookups+7 || open != lookup.MaxLookups {
			t.Errorf("after 7 answers %d look-ups began, %d are under way, want %d and %d",
				begun, open, lookup.MaxLookups+7, lookup.MaxLookups)
		}
		for _, w := range slices.Backward(watches) { // queued ones first, or they start
			w.Stop()
		}
		if begun, open := fakes.counts(); begun > lookup.MaxLookups+7 || open != 0 {
			t.Errorf("after the last Stop %d look-ups began, %d are under way", begun, open)
		}
	})
}
