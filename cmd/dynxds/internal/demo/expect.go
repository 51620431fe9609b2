package demo

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// sigmas is the number of standard deviations that a share may be off. A correct split
// exceeds five about once in a million times.
const sigmas = 5

// minRPCs is the number of RPCs of each group that a judgement needs: with fewer, the allowed
// deviation proves little.
const minRPCs = 100

// rpc is one RPC that has ended, as its client saw it.
type rpc struct {
	method        string // short name, or the name of a further client
	backend       string // that answered, or ""
	peer          string // the address of the connection, or ""
	configuration int    // that routed it, 0 if unknown
	start, end    time.Time
	paced         bool // its latency is deliberate
	err           error
}

// expectation describes the RPCs once a step's change has arrived.
type expectation struct {
	// configuration is the number of the one in force. An RPC that another one
	// routed, after the change was seen, is a fault.
	configuration int
	// about selects the RPCs that the change affects; nil is all of them. The others
	// prove nothing, and any configuration may route them.
	about func(rpc) bool
	// shows reports whether an answered RPC proves that the change has arrived; nil
	// stands for "configuration routed it". It holds for every affected RPC that starts
	// after one of them has ended.
	shows func(rpc) bool
	// groups are sets of methods, each with its own split.
	groups []group
	// excuses reports whether a failed RPC had to fail; nil excuses none.
	excuses func(rpc) bool
}

// group is a set of methods, or of further clients, whose RPCs are split alike: by
// independent draws or more evenly, as by round robin.
type group struct {
	methods []string           // none means all
	shares  map[string]float64 // by backend, with the sum 1; an absent backend has none
}

func (e *expectation) isAbout(r rpc) bool { return e.about == nil || e.about(r) }

// isShownBy reports whether an affected RPC proves that the change arrived.
func (e *expectation) isShownBy(r rpc) bool {
	if e.shows != nil {
		return e.shows(r)
	}
	return r.configuration == e.configuration
}

// enough reports whether every group has enough RPCs to be judged.
func (e *expectation) enough(c counts) bool {
	return !slices.ContainsFunc(e.groups, func(g group) bool { return c.of("", g.methods...) < minRPCs })
}

// missing returns an expected backend that has not answered, or "".
func (e *expectation) missing(c counts) string {
	for _, g := range e.groups {
		for backend, share := range g.shares {
			if share > 0 && c.of(backend, g.methods...) == 0 {
				return backend
			}
		}
	}
	return ""
}

// check compares one backend's share of a group's RPCs, from 0 to 1.
type check struct {
	Methods   []string `json:"methods,omitempty"`
	Backend   string   `json:"backend"`
	RPCs      int      `json:"rpcs"`
	Expected  float64  `json:"expected"`
	Share     float64  `json:"share"`
	Tolerance float64  `json:"tolerance"`
	OK        bool     `json:"ok"`
}

// checks compares the counts with the groups' shares.
func (e *expectation) checks(c counts) []check {
	var all []check
	for _, g := range e.groups {
		n := c.of("", g.methods...)
		for _, b := range c.mesh.Backends {
			got, want := c.share(b.Name, g.methods...), g.shares[b.Name]
			allowed := tolerance(want, n)
			all = append(all, check{
				Methods: g.methods, Backend: b.Name, RPCs: n,
				Expected: want, Share: rounded(got), Tolerance: rounded(allowed),
				// The slack is for rounding: with a share of 0 or 1 the tolerance is 0.
				OK: n > 0 && math.Abs(got-want) <= allowed+1e-9,
			})
		}
	}
	return all
}

// describe says what the groups expect of what was counted.
func (e *expectation) describe(c counts) string {
	var groups []string
	for _, g := range e.groups {
		var shares []string
		for _, b := range c.mesh.Backends {
			share, allowed := g.shares[b.Name], ""
			if tolerance := tolerance(share, c.of("", g.methods...)); tolerance > 0 {
				allowed = fmt.Sprintf("±%.1f", 100*tolerance)
			}
			if share > 0 {
				shares = append(shares, fmt.Sprintf("%s %.0f%s%%", b.Name, 100*share, allowed))
			}
		}
		text := strings.Join(shares, ", ")
		if len(g.methods) > 0 {
			text = "of " + strings.Join(g.methods, " and ") + " " + text
		}
		groups = append(groups, text)
	}
	return fmt.Sprintf("Expected (± is %d standard deviations): %s.", sigmas, strings.Join(groups, "; "))
}

// tolerance is sigmas standard deviations of the share of n independent draws with
// probability p.
func tolerance(p float64, n int) float64 {
	if n == 0 {
		return 0
	}
	return sigmas * math.Sqrt(p*(1-p)/float64(n))
}

// rounded keeps four decimals of a share.
func rounded(share float64) float64 { return math.Round(share*1e4) / 1e4 }

func (c check) String() string {
	methods := "all"
	if len(c.Methods) > 0 {
		methods = strings.Join(c.Methods, ", ")
	}
	return fmt.Sprintf("%s answered %.1f%% of %d RPCs (%s), expected %.1f%% ±%.1f%%",
		c.Backend, 100*c.Share, c.RPCs, methods, 100*c.Expected, 100*c.Tolerance)
}
