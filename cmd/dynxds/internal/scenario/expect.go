package scenario

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Sigmas is how many standard deviations a share may be off. A correct split
// exceeds five by chance about once in a million times, and a few times in a
// million where RPCs are few and the share is far from one half.
const Sigmas = 5

// MinRPCs is how many RPCs of each Group have to be counted before a step is
// judged: with fewer, the deviation that has to be allowed says little.
const MinRPCs = 100

// Expectation is what the RPCs look like once a step's change has arrived.
type Expectation struct {
	// Configuration is the number of the configuration in force. An RPC that
	// another one routed, after the change was seen, is a fault.
	Configuration int
	// About says which RPCs the change is about; nil means all of them. The others
	// prove nothing, and may be routed by any configuration.
	About func(RPC) bool
	// Shows says that an answered RPC proves that the change has arrived. nil
	// means that Configuration routed it. It has to hold for every RPC that the
	// change is about and that starts after such a one has ended.
	Shows func(RPC) bool
	// Groups are sets of methods, each with its own split.
	Groups []Group
	// Excuses says that a failed RPC had to fail. It is asked when the change
	// has arrived. nil excuses none.
	Excuses func(RPC) bool
}

// Group is a set of methods, or of further clients, whose RPCs are split alike. The RPCs have to be
// independent draws, or spread more evenly than those (as round robin does).
type Group struct {
	// Methods are as in RPC.Method; none means every one.
	Methods []string
	// Shares have the backends that answer, and sum to 1. A backend that is
	// not there must answer nothing.
	Shares map[string]float64
}

// Check is the comparison of one backend's share of a Group's RPCs.
type Check struct {
	Methods []string
	Backend string
	// Want, Got and Tolerance are parts from 0 to 1.
	Want, Got, Tolerance float64
	// RPCs is how many the shares are of.
	RPCs int
}

// OK says whether the share is as expected.
func (c Check) OK() bool {
	// The slack is for rounding: with a share of 0 or 1 the tolerance is 0.
	return c.RPCs > 0 && math.Abs(c.Got-c.Want) <= c.Tolerance+1e-9
}

func (c Check) String() string {
	methods := "all"
	if len(c.Methods) > 0 {
		methods = strings.Join(c.Methods, ", ")
	}
	return fmt.Sprintf("%s answered %.1f%% of %d RPCs (%s), expected %.1f%% ±%.1f%%",
		c.Backend, 100*c.Got, c.RPCs, methods, 100*c.Want, 100*c.Tolerance)
}

// tolerance is Sigmas standard deviations of the share that n independent draws
// of probability p have.
func tolerance(p float64, n int) float64 {
	if n == 0 {
		return 0
	}
	return Sigmas * math.Sqrt(p*(1-p)/float64(n))
}

// checks compares what was counted with what the groups expect, for each of
// backends.
func (e *Expectation) checks(counts Counts, backends []string) []Check {
	var all []Check
	for _, g := range e.Groups {
		n := counts.Of("", g.Methods...)
		for _, b := range backends {
			got, _ := counts.Share(b, g.Methods...)
			want := g.Shares[b]
			all = append(all, Check{
				Methods: g.Methods, Backend: b, RPCs: n,
				Want: want, Got: got, Tolerance: tolerance(want, n),
			})
		}
	}
	return all
}

// about says whether the change is about the RPC.
func (e *Expectation) about(r RPC) bool { return e.About == nil || e.About(r) }

// shows says whether the RPC, which the change is about, proves that it has arrived.
func (e *Expectation) shows(r RPC) bool {
	if e.Shows != nil {
		return e.Shows(r)
	}
	return r.Configuration == e.Configuration
}

// enough says whether every group has RPCs enough to be judged.
func (e *Expectation) enough(counts Counts) bool {
	for _, g := range e.Groups {
		if counts.Of("", g.Methods...) < MinRPCs {
			return false
		}
	}
	return true
}

// missing returns a backend that should answer and has not, or "".
func (e *Expectation) missing(counts Counts) string {
	for _, g := range e.Groups {
		for b, share := range g.Shares {
			if share > 0 && counts.Of(b, g.Methods...) == 0 {
				return b
			}
		}
	}
	return ""
}

// roundDuration cuts what is noise to a reader.
func roundDuration(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond)
	default:
		return d.Round(10 * time.Microsecond)
	}
}
