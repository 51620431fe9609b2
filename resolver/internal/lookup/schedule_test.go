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

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/resolver/internal/lookup"
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
	names []string
	open  int
	// hung are those without an answer.
	hung []grpcresolver.ClientConn
	// answered is how many of them answerOne has answered.
	answered int
}

func (d *fakeDNS) Build(target grpcresolver.Target, cc grpcresolver.ClientConn, opts grpcresolver.BuildOptions) (grpcresolver.Resolver, error) {
	if !strings.HasSuffix(target.Endpoint(), ".fake:80") {
		return d.Builder.Build(target, cc, opts)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begun = append(d.begun, time.Now())
	d.names = append(d.names, strings.TrimSuffix(target.Endpoint(), ".fake:80"))
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
	d.reply, d.begun, d.names, d.hung, d.open, d.answered = reply, nil, nil, nil, 0, 0
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

// answerOne answers the first look-up that has none.
func (d *fakeDNS) answerOne() {
	d.answered++
	oneAddress(d.hung[d.answered-1])
}

// expectLast checks the name of the last look-up that began.
func (d *fakeDNS) expectLast(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	if got := d.names[len(d.names)-1]; got != want {
		t.Errorf("the last look-up is of %s, want of %s", got, want)
	}
}

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
				w, _ := lookup.Start("limits.fake:80", "", tc.limits, ignore)
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
		w, _ := lookup.Start("fails.fake:80", "", lookup.Limits{}, ignore)
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

// many starts watches of n names of a group, which nothing answers.
func many(group string, n int) []*lookup.Watch {
	watches := make([]*lookup.Watch, n)
	for i := range watches {
		watches[i], _ = lookup.Start(fmt.Sprintf("%s%d.fake:80", group, i), group, lookup.Limits{Least: time.Hour}, ignore)
	}
	return watches
}

// stopAll stops watches, the last one first: those that wait before those that are looked up.
func stopAll(watches []*lookup.Watch) {
	for _, w := range slices.Backward(watches) {
		w.Stop()
	}
}

// Look-ups are queued, so that a cluster of ten thousand names costs no more goroutines
// than one of a hundred.
func TestConcurrentLookUpsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes.reset(nil)
		watches := many("n", 10*bounds.Lookups)
		if begun, open := fakes.counts(); begun != bounds.Lookups || open != begun {
			t.Errorf("%d look-ups began, %d are under way, want %d", begun, open, bounds.Lookups)
		}
		for _, cc := range fakes.hung[:7] {
			oneAddress(cc)
		}
		if begun, open := fakes.counts(); begun != bounds.Lookups+7 || open != bounds.Lookups {
			t.Errorf("after 7 answers %d look-ups began, %d are under way, want %d and %d",
				begun, open, bounds.Lookups+7, bounds.Lookups)
		}
		stopAll(watches)
		if begun, open := fakes.counts(); begun > bounds.Lookups+7 || open != 0 {
			t.Errorf("after the last Stop %d look-ups began, %d are under way", begun, open)
		}
	})
}

// A group whose names nobody answers does not delay the others.
func TestAGroupIsLookedUpAtOnceWhileAnotherOneHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes.reset(nil)
		watches := many("dead", 1000)
		fakes.counts()
		watches = append(watches, many("b", 3)...)
		fakes.expectLast(t, "b0")
		oneAddress(fakes.hung[bounds.Lookups])
		fakes.expectLast(t, "b1")

		// A name that waits gets the turns of another group that needs it, too.
		w, _ := lookup.Start("dead999.fake:80", "c", lookup.Limits{Least: time.Hour}, ignore)
		watches = append(watches, w)
		fakes.expectLast(t, "dead999")

		// Places that become free go to the group with the fewest look-ups under way.
		watches = append(watches, many("d", 3)...)
		fakes.expectLast(t, "d0")
		for _, open := fakes.counts(); open > bounds.Lookups; _, open = fakes.counts() {
			fakes.answerOne() // frees no place
		}
		for _, want := range []string{"b2", "d1", "d2", "dead100"} {
			fakes.answerOne()
			fakes.expectLast(t, want)
		}
		stopAll(watches)
		fakes.counts()
	})
}

// However many groups there are, look-ups under way are bounded.
func TestTheReserveIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes.reset(nil)
		watches := many("dead", 200)
		for i := range 3 * bounds.LookupsReserve {
			watches = append(watches, many(fmt.Sprint("g", i, "-"), 1)...)
		}
		if begun, open := fakes.counts(); begun != bounds.Lookups+bounds.LookupsReserve || open != begun {
			t.Errorf("%d look-ups began, %d are under way", begun, open)
		}
		stopAll(watches)
		fakes.counts()
	})
}
