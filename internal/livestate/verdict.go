package livestate

import (
	"fmt"
	"strings"
	"time"

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

// Facts are what a Verdict is computed from.
type Facts struct {
	Now time.Time
	// Channels counts the channels in use, Unconfigured those whose RPCs have no configuration and fail,
	// ByDNS those that DNS configures, and Bypassing those of them that have no bootstrap.
	Channels, Unconfigured, ByDNS, Bypassing int
	// Clusters counts the clusters by Health.
	Clusters map[Health]int
	// Measured is for how many seconds of the last minute RPCs were counted. Started, Ended and Failed are of
	// all RPCs in that time.
	Measured               int
	Started, Ended, Failed uint64
	// Servers counts the control planes in use.
	Servers, Connected, Lost int
	// Behind counts the control planes in use that are relays whose own is unreachable, since BehindSince.
	Behind      int
	BehindSince time.Time
	// Faults counts the problems with resources, Ending the certificates whose end is near.
	Faults, Ending int
	// LastChange is zero if there was none.
	LastChange time.Time
}

const (
	// manyErrors is the share of RPCs from which on a cluster is failing, and someErrors that from which on it is degraded.
	manyErrors = 0.5
	someErrors = 0.01
)

// Judge returns the verdict.
func Judge(f *Facts) Verdict {
	state, subject := f.judge()
	v := Verdict{State: state, Parts: []Part{subject}}
	if f.Channels > 0 {
		v.Parts = append(v.Parts, Part{About: "rpcs", Text: f.errors()})
	}
	if f.ByDNS > 0 {
		v.Parts = append(v.Parts, Part{About: "channels", Text: faults.Count(f.ByDNS, "channel") + " by DNS"})
	}
	v.Parts = append(v.Parts, Part{About: "servers", Text: f.servers()})
	last := Part{About: "changes", Text: "no change yet"}
	if !f.LastChange.IsZero() {
		last.Text, last.At = "last change", f.LastChange
	}
	v.Parts = append(v.Parts, last)
	var texts []string
	for _, p := range v.Parts {
		if !p.At.IsZero() {
			p.Text += " " + Ago(f.Now.Sub(p.At)) + " ago"
		}
		texts = append(texts, p.Text)
	}
	v.Text = strings.Join(texts, " · ")
	return v
}

func (f *Facts) share() float64 {
	m := outcomes.Minute{Ended: f.Ended, Failed: f.Failed}
	return m.Share()
}

// uncounted reports whether nothing is known of RPCs yet, as counting has only begun.
func (f *Facts) uncounted() bool { return f.Ended == 0 && f.Measured == 0 }

// judge returns the state, and the first part of the verdict, which says what is in that state. The worst comes first.
func (f *Facts) judge() (Health, Part) {
	all := 0
	for _, n := range f.Clusters {
		all += n
	}
	of := func(n int) string {
		if all == 1 {
			return "the only cluster"
		}
		return fmt.Sprintf("%s of %s", faults.Number(n), faults.Count(all, "cluster"))
	}
	part := func(h Health, about, format string, args ...any) (Health, Part) {
		return h, Part{About: about, Text: strings.ToUpper(string(h[:1])) + string(h[1:]) + ": " + fmt.Sprintf(format, args...)}
	}
	healthy, counted := f.Clusters[Healthy], !f.uncounted() // connections alone do not say that RPCs work
	switch {
	case f.Clusters[Failing] > 0:
		return part(Failing, "clusters", "%s", of(f.Clusters[Failing]))
	case f.Unconfigured > 0:
		return part(Failing, "channels", "%s of %s without configuration", faults.Number(f.Unconfigured), faults.Count(f.Channels, "channel"))
	case f.share() >= manyErrors:
		return part(Failing, "rpcs", "RPCs")
	case f.Clusters[Degraded] > 0:
		return part(Degraded, "clusters", "%s", of(f.Clusters[Degraded]))
	case f.share() >= someErrors:
		return part(Degraded, "rpcs", "RPCs")
	case f.Bypassing > 0:
		return part(Degraded, "channels", "%s of %s without a bootstrap", faults.Number(f.Bypassing), faults.Count(f.Channels, "channel"))
	case f.Lost+f.Behind > 0:
		return part(Degraded, "servers", "no news from a control plane")
	case f.Faults > 0:
		return part(Degraded, "problems", "%s with an error", faults.Count(f.Faults, "resource"))
	case f.Ending > 0:
		return part(Degraded, "problems", "%s at the end", faults.Count(f.Ending, "certificate"))
	case counted && healthy == 0 && f.Ended > f.Failed:
		return part(Healthy, "rpcs", "RPCs")
	case counted && healthy > 0 && healthy == all:
		return part(Healthy, "clusters", "%s", faults.Count(all, "cluster"))
	case counted && healthy > 0:
		return part(Healthy, "clusters", "%s of %s in use", faults.Number(healthy), faults.Count(all, "cluster"))
	case f.Channels == 0:
		return part(Unknown, "channels", "no xDS channel is in use")
	case f.ByDNS == f.Channels:
		return part(Unknown, "channels", "no channel is configured by xDS")
	case all == 0:
		return part(Unknown, "channels", "no configuration yet")
	case healthy > 0:
		return part(Unknown, "clusters", "%s of %s connected", faults.Number(healthy), faults.Count(all, "cluster"))
	case all == 1:
		return part(Unknown, "clusters", "the only cluster is not connected")
	default:
		return part(Unknown, "clusters", "none of %s is connected", faults.Count(all, "cluster"))
	}
}

// errors says what became of RPCs.
func (f *Facts) errors() string {
	span := span(f.Measured)
	switch {
	case f.uncounted():
		return "errors unknown: RPCs are counted from now on"
	case f.Ended == 0 && f.Started == 0:
		return "no RPCs in " + span
	case f.Ended == 0:
		return "no RPC has ended in " + span
	case f.Failed == 0:
		return "no errors in " + faults.Count(int(f.Ended), "RPC")
	default:
		return Percent(f.share()) + " errors"
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

func (f *Facts) servers() string {
	name := func(n int) string {
		if f.Servers == 1 {
			return "control plane"
		}
		return fmt.Sprintf("%s of %d control planes", faults.Number(n), f.Servers)
	}
	switch {
	case f.Servers == 0:
		return "no control plane in use"
	case f.Lost > 0:
		return name(f.Lost) + " unreachable"
	case f.Behind > 0:
		return RelayAlone(f.Now.Sub(f.BehindSince))
	case f.Connected == f.Servers && f.Servers > 1:
		return fmt.Sprintf("%d control planes connected", f.Servers)
	case f.Connected == f.Servers:
		return "control plane connected"
	default:
		return name(f.Servers-f.Connected) + " not connected yet"
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
