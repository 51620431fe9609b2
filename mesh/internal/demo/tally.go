package demo

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/internal/styled"
)

const (
	// sigmas is the number of standard deviations that a share may be off. A correct split exceeds five about once in a million
	// times.
	sigmas = 5
	// minRPCs is the number of RPCs of each group that a verdict needs: with fewer, the allowed deviation proves little.
	minRPCs = 100
)

// group is a set of RPCs that one configuration routes and splits alike: by independent draws or more evenly, as by round robin.
type group struct {
	of            []string // as in rpc; none means all
	configuration string
	shares        map[string]float64 // by backend, with the sum 1; an absent backend has none
}

// tally judges a step by its RPCs, which any number of goroutines add.
type tally struct {
	mu      sync.Mutex
	groups  []group
	changed time.Time // when the change of the step was made
	// missing has the shares of the backends of each group that no RPC has reached since, as one may still be connecting.
	missing []map[string]float64
	arrived time.Time        // when none was missing any more; RPCs that begin later count
	counted []map[string]int // by group and backend
	strays  int              // RPCs that count, but that another configuration than that of their group has routed

	// These are of all steps. Failed RPCs on a connection to the excused address had to fail.
	answered, failed, excused int
	failure                   rpc // the first that failed
	excusedAddress            string
}

// begin starts a step, whose change was made.
func (t *tally) begin(groups []group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.groups, t.missing, t.counted = groups, nil, nil
	t.changed, t.arrived, t.strays = time.Now(), time.Time{}, 0
	for _, g := range groups {
		t.counted, t.missing = append(t.counted, map[string]int{}), append(t.missing, maps.Clone(g.shares))
	}
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
	case r.err == nil:
		t.answered++
	case r.peer != "" && r.peer == t.excusedAddress:
		t.excused++
		return
	default:
		if t.failed == 0 {
			t.failure = r
		}
		t.failed++
		return
	}
	at := slices.IndexFunc(t.groups, func(g group) bool { return len(g.of) == 0 || slices.Contains(g.of, r.of) })
	if at < 0 || r.start.Before(t.changed) {
		return
	}
	right := r.configuration == t.groups[at].configuration
	if t.arrived.IsZero() {
		if right {
			delete(t.missing[at], r.backend)
		}
		if !slices.ContainsFunc(t.missing, func(of map[string]float64) bool { return len(of) > 0 }) {
			t.arrived = time.Now()
		}
		return
	}
	if r.start.Before(t.arrived) {
		return
	}
	t.counted[at][r.backend]++
	if !right {
		t.strays++
	}
}

// enough reports whether each group has enough RPCs for a verdict.
func (t *tally) enough() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.ContainsFunc(t.counted, func(c map[string]int) bool { return sum(c) < minRPCs })
}

// verdict returns a table of the shares, and why the step was not observed, or nothing if it was.
func (t *tally) verdict() (table styled.Text, reasons []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	table.Add(styled.Heading, "  %-25s  %-10s %7s   %s", "RPCs", "backend", "share", "expected")
	for i, g := range t.groups {
		n, title := sum(t.counted[i]), cmp.Or(strings.Join(g.of, ", "), "all RPCs")
		if n < minRPCs {
			reasons = append(reasons, fmt.Sprintf("%d of %s show the change, and %d have to", n, title, minRPCs))
		}
		for _, b := range backends {
			got, want := float64(t.counted[i][b.name])/float64(max(1, n)), g.shares[b.name]
			if got == 0 && want == 0 {
				continue
			}
			style, expected := styled.Plain, fmt.Sprintf("%.0f%%", 100*want)
			allowed := tolerance(want, n)
			if allowed > 0 {
				expected = fmt.Sprintf("%.0f ±%.1f%%", 100*want, 100*allowed)
			}
			if math.Abs(got-want) > allowed+1e-9 { // which is for rounding
				style = styled.Bad
				reasons = append(reasons, fmt.Sprintf("%s answered %.1f%% of %s, expected %s", b.name, 100*got, title, expected))
			}
			table.Add(style, "  %-25s  %-10s %6.1f%%   %s", title, b.name, 100*got, expected)
			title = "" // once is enough
		}
	}
	if t.strays > 0 {
		reasons = append(reasons, faults.Count(t.strays, "RPC")+" went by another configuration")
	}
	if t.failed > 0 {
		reasons = append(reasons, fmt.Sprintf("%s failed, the first %s: %v", faults.Count(t.failed, "RPC"), t.failure.of, t.failure.err))
	}
	return table, reasons
}

func sum(c map[string]int) (n int) {
	for _, of := range c {
		n += of
	}
	return n
}

// tolerance is sigmas standard deviations of the share of n independent draws with probability p.
func tolerance(p float64, n int) float64 { return sigmas * math.Sqrt(p*(1-p)/float64(max(1, n))) }
