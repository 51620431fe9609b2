package livestate

import (
	"fmt"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/outcomes"
)

// Verdict answers whether the process is healthy.
type Verdict struct {
	State Health `json:"state"` // but not Idle
	// Text is the verdict in one line: that of the Parts.
	Text  string `json:"text"`
	Parts []Part `json:"parts,omitempty"`
}

// Part is a part of a verdict.
type Part struct {
	// About is what it is about, for links: "clusters", "channels", "rpcs", "servers" or "changes".
	About string `json:"about"`
	Text  string `json:"text"`
	// At, if not zero, is a time that Text says to be some time ago.
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
	v := Verdict{State: f.health()}
	v.add(f.subject(v.State))
	if f.Channels > 0 {
		v.add(Part{About: "rpcs", Text: f.errors()})
	}
	if f.ByDNS > 0 {
		v.add(Part{About: "channels", Text: faults.Count(f.ByDNS, "channel") + " by DNS"})
	}
	v.add(Part{About: "servers", Text: f.servers()})
	if f.LastChange.IsZero() {
		v.add(Part{About: "changes", Text: "no change yet"})
	} else {
		v.add(Part{About: "changes", Text: "last change " + Ago(f.Now.Sub(f.LastChange)) + " ago", At: f.LastChange})
	}
	return v
}

func (v *Verdict) add(p Part) {
	if len(v.Parts) > 0 {
		v.Text += " · "
	}
	v.Text += p.Text
	v.Parts = append(v.Parts, p)
}

func (f *Facts) share() float64 {
	m := Minute{Ended: f.Ended, Failed: f.Failed}
	return m.Share()
}

// uncounted reports whether nothing is known of RPCs yet, as counting has only begun.
func (f *Facts) uncounted() bool { return f.Ended == 0 && f.Measured == 0 }

func (f *Facts) health() Health {
	switch {
	case f.Clusters[Failing] > 0, f.Unconfigured > 0, f.share() >= manyErrors:
		return Failing
	case f.Clusters[Degraded] > 0, f.share() >= someErrors, f.Bypassing > 0, f.Lost+f.Behind > 0, f.Faults > 0, f.Ending > 0:
		return Degraded
	case f.uncounted(): // Connections alone do not say that RPCs work.
		return Unknown
	case f.Clusters[Healthy] > 0, f.Ended > f.Failed:
		return Healthy
	default:
		return Unknown
	}
}

// subject is the first part, which says what is failing, degraded, healthy or not known.
func (f *Facts) subject(h Health) Part {
	all := 0
	for _, n := range f.Clusters {
		all += n
	}
	clusters := Part{About: "clusters"}
	of := func(n int) string {
		if all == 1 {
			return "the only cluster"
		}
		return fmt.Sprintf("%s of %s", faults.Number(n), faults.Count(all, "cluster"))
	}
	switch {
	case h == Failing && f.Clusters[Failing] > 0:
		clusters.Text = "Failing: " + of(f.Clusters[Failing])
	case h == Failing && f.Unconfigured > 0:
		return Part{About: "channels", Text: fmt.Sprintf("Failing: %s of %s without configuration", faults.Number(f.Unconfigured), faults.Count(f.Channels, "channel"))}
	case h == Failing:
		return Part{About: "rpcs", Text: "Failing: RPCs"}
	case h == Degraded && f.Clusters[Degraded] > 0:
		clusters.Text = "Degraded: " + of(f.Clusters[Degraded])
	case h == Degraded && f.share() >= someErrors:
		return Part{About: "rpcs", Text: "Degraded: RPCs"}
	case h == Degraded && f.Bypassing > 0:
		return Part{About: "channels", Text: fmt.Sprintf("Degraded: %s of %s without a bootstrap", faults.Number(f.Bypassing), faults.Count(f.Channels, "channel"))}
	case h == Degraded && f.Lost+f.Behind > 0:
		return Part{About: "servers", Text: "Degraded: no news from a control plane"}
	case h == Degraded && f.Faults > 0:
		return Part{About: "problems", Text: "Degraded: " + faults.Count(f.Faults, "resource") + " with an error"}
	case h == Degraded:
		return Part{About: "problems", Text: "Degraded: " + faults.Count(f.Ending, "certificate") + " at the end"}
	case h == Healthy && f.Clusters[Healthy] == 0:
		return Part{About: "rpcs", Text: "Healthy: RPCs"}
	case h == Healthy && all == f.Clusters[Healthy]:
		clusters.Text = "Healthy: " + faults.Count(all, "cluster")
	case h == Healthy:
		clusters.Text = fmt.Sprintf("Healthy: %s of %s in use", faults.Number(f.Clusters[Healthy]), faults.Count(all, "cluster"))
	case f.Channels == 0:
		return Part{About: "channels", Text: "Unknown: no xDS channel is in use"}
	case f.ByDNS == f.Channels:
		return Part{About: "channels", Text: "Unknown: no channel is configured by xDS"}
	case all == 0:
		return Part{About: "channels", Text: "Unknown: no configuration yet"}
	case f.Clusters[Healthy] > 0:
		clusters.Text = fmt.Sprintf("Unknown: %s of %s connected", faults.Number(f.Clusters[Healthy]), faults.Count(all, "cluster"))
	case all == 1:
		clusters.Text = "Unknown: the only cluster is not connected"
	default:
		clusters.Text = "Unknown: none of " + faults.Count(all, "cluster") + " is connected"
	}
	return clusters
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
