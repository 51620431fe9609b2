package demo

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
)

const (
	// sigmas is the number of standard deviations that a share may be off. A correct split exceeds five about once in a million
	// times.
	sigmas = 5
	// minRPCs is the number of RPCs of each group that a verdict needs: with fewer, the allowed deviation proves little.
	minRPCs = 100
)

// tally judges a step by its RPCs, which any number of goroutines add.
type tally struct {
	mu     sync.Mutex
	groups []group
	// changed is when the change of the step was made, shown the end of the first RPC that shows it, and since the moment from which on
	// every backend that should answer has answered: one may still be connecting. They are zero until then.
	changed, shown, since time.Time
	waiting               map[string]bool // the backends that have not answered since shown
	answered              int             // in the step
	counted               counts          // RPCs that began after since
	ready                 chan struct{}   // closed when there are enough of them
	enough                bool            // ready is closed
	strays                int             // RPCs that another configuration routed than that of their group, after shown
	stray                 rpc             // the first of them

	// These are of all steps. Failed RPCs on a connection to the excused address had to fail.
	total, failed, excused int
	failure                rpc // the first that failed
	excusedAddress         string
}

// begin starts a step. The channel is closed when there are enough RPCs to judge it.
func (t *tally) begin(groups []group) (ready <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.groups, t.waiting, t.counted = groups, map[string]bool{}, counts{}
	t.changed, t.shown, t.since, t.answered = time.Time{}, time.Time{}, time.Time{}, 0
	t.ready, t.enough, t.strays = make(chan struct{}), false, 0
	for _, g := range groups {
		for backend := range g.shares {
			t.waiting[backend] = true
		}
	}
	return t.ready
}

// made says that the change of the step was made.
func (t *tally) made() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed = time.Now()
}

// excuse says that RPCs on a connection to an address will fail.
func (t *tally) excuse(address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.excusedAddress = address
}

// record adds an RPC that has ended.
func (t *tally) record(r rpc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case r.err != nil && r.peer != "" && r.peer == t.excusedAddress:
		t.excused++
		return
	case r.err != nil:
		if t.failed == 0 {
			t.failure = r
		}
		t.failed++
		return
	}
	t.total++
	t.answered++
	at := slices.IndexFunc(t.groups, func(g group) bool { return len(g.methods) == 0 || slices.Contains(g.methods, r.method) })
	if at < 0 || t.changed.IsZero() || !r.start.After(t.changed) {
		return
	}
	right := r.configuration == t.groups[at].configuration
	if t.shown.IsZero() {
		if at > 0 || !right {
			return
		}
		t.shown = r.end
	} else if !right && r.start.After(t.shown) {
		if t.strays == 0 {
			t.stray = r
		}
		t.strays++
	}
	if t.since.IsZero() {
		if delete(t.waiting, r.backend); len(t.waiting) == 0 {
			t.since = r.end
		}
	} else if r.start.After(t.since) {
		t.counted[[2]string{r.backend, r.method}]++
		if !t.enough && !slices.ContainsFunc(t.groups, func(g group) bool { return t.counted.of("", g.methods...) < minRPCs }) {
			t.enough = true
			close(t.ready)
		}
	}
}

// faults explains why the step was not observed; there are none if it was.
func (t *tally) faults() (found []string) {
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	switch {
	case t.shown.IsZero():
		fault("no RPC has shown the change within %v, of %s", time.Since(t.changed).Round(time.Second/10), faults.Count(t.answered, "RPC"))
	case t.since.IsZero():
		fault("since the first RPC that shows the change none was answered by %s", strings.Join(slices.Sorted(maps.Keys(t.waiting)), ", "))
	case !t.enough:
		fault("too few RPCs were answered to judge the shares: %d, needed are %d of each group of methods", t.counted.of(""), minRPCs)
	default:
		for _, g := range t.groups {
			found = append(found, t.counted.wrongShares(g)...)
		}
	}
	if t.strays > 0 {
		fault("an RPC before was routed by the new configuration, but then %s by another one, the first %s by %q",
			faults.Count(t.strays, "RPC"), t.stray.method, t.stray.configuration)
	}
	if t.failed > 0 {
		fault("%s failed, the first: %s: %v", faults.Count(t.failed, "RPC"), t.failure.method, t.failure.err)
	}
	return found
}

// counts are answered RPCs by backend and method.
type counts map[[2]string]int

// of returns the number of RPCs of the methods that a backend answered. No methods means all methods, and "" all backends.
func (c counts) of(backend string, methods ...string) int {
	sum := 0
	for key, n := range c {
		if (backend == "" || key[0] == backend) && (len(methods) == 0 || slices.Contains(methods, key[1])) {
			sum += n
		}
	}
	return sum
}

// share returns a backend's part of the RPCs of the methods, 0 if there were none.
func (c counts) share(backend string, methods ...string) float64 {
	return float64(c.of(backend, methods...)) / float64(max(1, c.of("", methods...)))
}

// wrongShares describes the backends whose share of a group's RPCs is not what chance allows.
func (c counts) wrongShares(g group) (wrong []string) {
	for _, b := range backends {
		got, want := c.share(b.name, g.methods...), g.shares[b.name]
		allowed := tolerance(want, c.of("", g.methods...))
		// The slack is for rounding: with a share of 0 or 1 the tolerance is 0.
		if math.Abs(got-want) > allowed+1e-9 {
			wrong = append(wrong, fmt.Sprintf("%s answered %.1f%% of %s, expected %.1f%% ±%.1f%%", b.name, 100*got, g.title(), 100*want, 100*allowed))
		}
	}
	return wrong
}

// tolerance is sigmas standard deviations of the share of n independent draws with probability p.
func tolerance(p float64, n int) float64 { return sigmas * math.Sqrt(p*(1-p)/float64(max(1, n))) }

// title names the methods of a group.
func (g *group) title() string {
	if len(g.methods) == 0 {
		return "all RPCs"
	}
	return strings.Join(g.methods, " and ")
}
