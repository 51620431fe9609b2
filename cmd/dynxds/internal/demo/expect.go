package demo

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// sigmas is how many standard deviations a share may be off. A correct split
// exceeds five by chance about once in a million times.
const sigmas = 5

// minRPCs is how many RPCs of each group have to be counted before a step is
// judged: with fewer, the deviation that has to be allowed says little.
const minRPCs = 100

// rpc is one RPC that has ended, as its client saw it.
type rpc struct {
	method        string // short name; of further clients the client's name
	backend       string // who answered, "" if nobody did
	peer          string // the address of its connection, "" if it had none
	configuration int    // the number of the one that routed it, 0 if unknown
	start, end    time.Time
	paced         bool // takes as long as it does on purpose: no latency
	err           error
}

// expectation is what the RPCs look like once a step's change has arrived.
type expectation struct {
	// configuration is the number of the one in force. An RPC that another one
	// routed, after the change was seen, is a fault.
	configuration int
	// about says which RPCs the change is about; nil is all of them. The others
	// prove nothing, and may be routed by any configuration.
	about func(rpc) bool
	// shows says that an answered RPC proves that the change has arrived; nil is
	// that configuration routed it. It holds for every RPC that the change is about
	// and that starts after such a one has ended.
	shows func(rpc) bool
	// groups are sets of methods, each with its own split.
	groups []group
	// excuses says that a failed RPC had to fail; nil excuses none.
	excuses func(rpc) bool
}

// group is a set of methods, or of further clients, whose RPCs are split alike. The
// RPCs are independent draws, or spread more evenly than those (as round robin does).
type group struct {
	methods []string           // none is every one
	shares  map[string]float64 // by backend; sum to 1; who is not there answers nothing
}

func (e *expectation) isAbout(r rpc) bool { return e.about == nil || e.about(r) }

// isShownBy reports whether an RPC that the change is about proves that it arrived.
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

// missing returns a backend that should answer and has not, or "".
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

// check is the comparison of one backend's share of a group's RPCs. Shares are from
// 0 to 1.
type check struct {
	Methods   []string `json:"methods,omitempty"`
	Backend   string   `json:"backend"`
	RPCs      int      `json:"rpcs"`
	Expected  float64  `json:"expected"`
	Share     float64  `json:"share"`
	Tolerance float64  `json:"tolerance"`
	OK        bool     `json:"ok"`
}

// checks compares what was counted with what the groups expect.
func (e *expectation) checks(c counts) []check {
	var all []check
	for _, g := range e.groups {
		n := c.of("", g.methods...)
		for _, b := range c.layout.backends {
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

// tolerance is sigmas standard deviations of the share that n independent draws of
// probability p have.
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
