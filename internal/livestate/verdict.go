package livestate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/outcomes"
)

// Verdict answers whether the process is healthy.
type Verdict struct {
	State Health `json:"state"` // but not Idle
	// Text is the verdict in one line: that of the Parts, with how long ago their times are.
	Text  string `json:"text"`
	Parts []Part `json:"parts,omitempty"`
}

// Part is a part of a verdict.
type Part struct {
	// About is what it is about, for links: "clusters", "channels", "rpcs", "servers" or "changes".
	About string `json:"about"`
	Text  string `json:"text"`
	// At, if not zero, is when what Text names happened.
	At time.Time `json:"at,omitzero"`
}

const (
	// manyErrors is the share of RPCs from which on a cluster is failing, and someErrors that from which on it is degraded.
	manyErrors = 0.5
	someErrors = 0.01
)

// count returns how many elements of a list are such.
func count[T any](all []T, such func(*T) bool) (n int) {
	for i := range all {
		if such(&all[i]) {
			n++
		}
	}
	return n
}

func byDNS(c *Channel) bool   { return c.Mode == string(channels.DNS) }
func isLost(s *Server) bool   { return s.Error != "" }
func isBehind(s *Server) bool { return !s.BehindSince.IsZero() }

// verdict judges the state.
func (g *gathering) verdict() Verdict {
	v := g.judge()
	if len(g.Channels) > 0 {
		v.Parts = append(v.Parts, Part{About: "rpcs", Text: g.errors()})
	}
	if n := count(g.Channels, byDNS); n > 0 {
		v.Parts = append(v.Parts, Part{About: "channels", Text: faults.Count(n, "channel") + " by DNS"})
	}
	v.Parts = append(v.Parts, Part{About: "servers", Text: g.connections()})
	last := Part{About: "changes", Text: "no change yet"}
	if len(g.recent) > 0 {
		last.Text, last.At = "last change", g.recent[0].Time
	}
	v.Parts = append(v.Parts, last)
	var texts []string
	for _, p := range v.Parts {
		if !p.At.IsZero() {
			p.Text += " " + Ago(g.Time.Sub(p.At)) + " ago"
		}
		texts = append(texts, p.Text)
	}
	v.Text = strings.Join(texts, " · ")
	return v
}

// uncounted reports whether nothing is known of RPCs yet, as counting has only begun.
func (g *gathering) uncounted() bool { return g.rpcs.Ended == 0 && g.rpcs.Seconds == 0 }

// Claim is what a verdict may begin with, if it holds.
type Claim struct {
	Holds       bool
	State       Health
	About, Text string
}

// Judge returns a verdict that begins with the first claim that holds.
func Judge(claims ...Claim) (v Verdict) {
	for _, c := range claims {
		if c.Holds {
			return Verdict{State: c.State, Parts: []Part{{About: c.About, Text: strings.ToUpper(string(c.State[:1])) + string(c.State[1:]) + ": " + c.Text}}}
		}
	}
	return v
}

// judge begins the verdict with what is in the worst state.
func (g *gathering) judge() Verdict {
	channels, all, clusters := len(g.Channels), len(g.Clusters), make(map[Health]int)
	for _, c := range g.Clusters {
		clusters[c.Health]++
	}
	unconfigured := count(g.Channels, func(c *Channel) bool { return c.Health == Failing })
	bypassing := count(g.Channels, func(c *Channel) bool { return c.Health == Degraded })
	ending := count(g.Problems, func(p *Problem) bool { return p.Kind == "certificate" })
	share := func(n, all int, noun string) string { return faults.Number(n) + " of " + faults.Count(all, noun) }
	of := func(n int) string {
		if all == 1 {
			return "the only cluster"
		}
		return share(n, all, "cluster")
	}
	healthy, counted := clusters[Healthy], !g.uncounted() // connections alone do not say that RPCs work
	return Judge([]Claim{
		{clusters[Failing] > 0, Failing, "clusters", of(clusters[Failing])},
		{unconfigured > 0, Failing, "channels", share(unconfigured, channels, "channel") + " without configuration"},
		{g.rpcs.Share() >= manyErrors, Failing, "rpcs", "RPCs"},
		{clusters[Degraded] > 0, Degraded, "clusters", of(clusters[Degraded])},
		{g.rpcs.Share() >= someErrors, Degraded, "rpcs", "RPCs"},
		{bypassing > 0, Degraded, "channels", share(bypassing, channels, "channel") + " without a bootstrap"},
		{count(g.Servers, isLost)+count(g.Servers, isBehind) > 0, Degraded, "servers", "no news from a control plane"},
		{g.faults > 0, Degraded, "problems", faults.Count(g.faults, "resource") + " with an error"},
		{ending > 0, Degraded, "problems", faults.Count(ending, "certificate") + " at the end"},
		{counted && healthy == 0 && g.rpcs.Ended > g.rpcs.Failed, Healthy, "rpcs", "RPCs"},
		{counted && healthy > 0 && healthy == all, Healthy, "clusters", faults.Count(all, "cluster")},
		{counted && healthy > 0, Healthy, "clusters", share(healthy, all, "cluster") + " in use"},
		{channels == 0, Unknown, "channels", "no xDS channel is in use"},
		{count(g.Channels, byDNS) == channels, Unknown, "channels", "no channel is configured by xDS"},
		{all == 0, Unknown, "channels", "no configuration yet"},
		{healthy > 0, Unknown, "clusters", share(healthy, all, "cluster") + " connected"},
		{all == 1, Unknown, "clusters", "the only cluster is not connected"},
		{true, Unknown, "clusters", "none of " + faults.Count(all, "cluster") + " is connected"},
	}...)
}

// errors says what became of RPCs.
func (g *gathering) errors() string {
	span := span(g.rpcs.Seconds)
	switch {
	case g.uncounted():
		return "errors unknown: RPCs are counted from now on"
	case g.rpcs.Ended == 0 && g.rpcs.Started == 0:
		return "no RPCs in " + span
	case g.rpcs.Ended == 0:
		return "no RPC has ended in " + span
	case g.rpcs.Failed == 0:
		return "no errors in " + faults.Count(int(g.rpcs.Ended), "RPC")
	default:
		return Percent(g.rpcs.Share()) + " errors"
	}
}

// span names the last seconds, of which the last minute at most is known.
func span(seconds int) string {
	switch {
	case seconds >= outcomes.Seconds:
		return "the last minute"
	case seconds <= 1: // What was counted since the last whole second counts, too.
		return "the last second"
	default:
		return "the last " + faults.Count(seconds, "second")
	}
}

// connections says how the control planes are.
func (g *gathering) connections() string {
	all, connected := len(g.Servers), count(g.Servers, func(s *Server) bool { return s.Connected })
	name := func(n int) string {
		if all == 1 {
			return "control plane"
		}
		return fmt.Sprintf("%s of %d control planes", faults.Number(n), all)
	}
	lost := count(g.Servers, isLost)
	switch {
	case all == 0:
		return "no control plane in use"
	case lost > 0:
		return name(lost) + " unreachable"
	case count(g.Servers, isBehind) > 0:
		first := slices.MinFunc(g.Servers, func(a, b Server) int { return compareTimes(a.BehindSince, b.BehindSince) })
		return RelayAlone(g.Time.Sub(first.BehindSince))
	case connected == all && all > 1:
		return fmt.Sprintf("%d control planes connected", all)
	case connected == all:
		return "control plane connected"
	default:
		return name(all-connected) + " not connected yet"
	}
}

// RelayAlone says that a relay has not reached its own control plane for some time.
func RelayAlone(d time.Duration) string {
	return "relay connected; its control plane unreachable for " + Ago(d)
}

// Percent writes a share.
func Percent(share float64) string {
	switch p := 100 * share; {
	case p == 0 || p == 100:
		return fmt.Sprintf("%.0f %%", p)
	case p < 0.1:
		return "under 0.1 %"
	case p > 99.9:
		return "over 99.9 %"
	default:
		return fmt.Sprintf("%.1f %%", p)
	}
}

// Ago writes how long ago something was, in the largest unit.
func Ago(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}
