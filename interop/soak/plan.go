package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A plan is what happens in a simulation. It is drawn from a seed, and can be shrunk: each event
// draws from a seed of its own, so that the others stay what they are without it.
type plan struct {
	seed uint64
	// clients are those of the mesh.
	clients []client
	rounds  []round
	// events are in order.
	events []event
}

// round is events in a row, after which the mesh settles.
type round struct {
	// lying says that the control plane lies at times.
	lying bool
	// quiet is the time until the next round.
	quiet time.Duration
}

// event is an operation at a time.
type event struct {
	round int
	// at is when it is done, since the begin of the round.
	at   time.Duration
	op   *op
	seed uint64
	// lasts is how long it lasts if it is a disruption.
	lasts time.Duration
}

// String is a line of a report.
func (e event) String() string {
	return fmt.Sprintf("round %d, %v: %s (for %v; seed %d)", e.round, e.at, e.op.name, e.lasts, e.seed)
}

// String is for reports.
func (p plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, clients", p.seed)
	for _, c := range p.clients {
		fmt.Fprintf(&b, " %q", c.name)
		if c.cached {
			b.WriteString(" with a disk cache")
		}
	}
	for i, r := range p.rounds {
		if slices.ContainsFunc(p.events, func(e event) bool { return e.round == i }) {
			fmt.Fprintf(&b, "\nround %d: lies %v, then %v of quiet", i, r.lying, r.quiet)
		}
	}
	for _, e := range p.events {
		fmt.Fprintf(&b, "\n%v", e)
	}
	return b.String()
}

const (
	// maxClients, maxRounds and maxEvents bound a plan; there are at most maxEvents in a round.
	maxClients, maxRounds, maxEvents = 3, 4, 14
	// maxQuiet is the longest time between two rounds.
	maxQuiet = time.Hour
)

// scales are the lengths that times are drawn from: shorter than a round trip, as long as timers, longer than any backoff.
var scales = []time.Duration{20 * time.Millisecond, time.Second, 20 * time.Second, 3 * time.Minute}

// newPlan draws a plan.
func newPlan(seed uint64) plan {
	d := rand.New(rand.NewPCG(seed, 1))
	p := plan{seed: seed}
	all := slices.Clone(clients)
	d.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	// Operations on DPDS need a client that uses it.
	first := slices.IndexFunc(all, func(c client) bool { return c.dpds != noDPDS })
	all[0], all[first] = all[first], all[0]
	p.clients = all[:1+d.IntN(maxClients)]
	for i := range p.clients {
		p.clients[i].cached = d.IntN(3) == 0
	}
	for i := range 1 + d.IntN(maxRounds) {
		lying := d.IntN(3) == 0
		from := honestRound
		if lying {
			from = lyingRound
		}
		p.rounds = append(p.rounds, round{lying, time.Duration(d.Int64N(int64(maxQuiet)))})
		at, answered := time.Duration(0), time.Duration(0)
		for range 1 + d.IntN(maxEvents) {
			at += drawTime(d)
			e := event{i, at, pick(d, from), d.Uint64(), drawTime(d)}
			switch {
			case p.mayBeSilent():
			case e.op.name == loses, silencing[e.op.name] && at < answered:
				continue // the silence would last for as long as the keepalive takes, or is a longer one with that before
			case silencing[e.op.name]:
				e.lasts = min(e.lasts, longestSilence)
				answered = at + e.lasts + answering
			}
			p.events = append(p.events, e)
		}
	}
	return p
}

// silencing are the operations that leave streams open on which no response comes.
var silencing = map[string]bool{
	"the control plane stops sending":       true,
	"the control plane stops reading":       true,
	"the control plane drops responses":     true,
	"DPDS responses are dropped":            true,
	"a host is cut off from control planes": true,
}

// A stream is silent for a time only, for a client whose server may lack a resource and not say so: the silence ends
// before the client goes on without what it asked for, after 15 s. RPCs that need it then fail, rightly.
const (
	// longestSilence is the longest time of silence, and answering is how long the answers take that come after it.
	longestSilence = 10 * time.Second
	answering      = 4 * time.Second
)

// mayBeSilent reports whether the servers of all clients are known to say which resources they lack.
func (p plan) mayBeSilent() bool {
	return !slices.ContainsFunc(p.clients, func(c client) bool { return !slices.Contains(c.features, saysAbsence) })
}

// drawTime draws a time of any scale.
func drawTime(d *rand.Rand) time.Duration {
	return time.Duration(d.Int64N(int64(scales[d.IntN(len(scales))])))
}
