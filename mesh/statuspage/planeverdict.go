package statuspage

import (
	"fmt"
	"slices"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
)

// planeFacts are what the verdict on a control plane is computed from.
type planeFacts struct {
	// configuration is nil if the control plane does not say.
	configuration *planestate.State
	// Each client is one of these.
	inSync, behind, refusing int
	// late is how many are behind for long.
	late int
}

// longBehind is how long an answer of a client may take.
const longBehind = 10 * time.Second

func (f *planeFacts) clients() int { return f.inSync + f.behind + f.refusing }

// judge returns the verdict.
func (f *planeFacts) judge() livestate.Verdict {
	v := livestate.Verdict{}
	add := func(about, text string) { v.Parts = append(v.Parts, livestate.Part{About: about, Text: text}) }
	c := f.configuration
	switch {
	case c != nil && c.Published == nil:
		v.State = livestate.Failing
		add("problems", "Failing: nothing is published yet")
	case f.refusing > 0:
		v.State = livestate.Failing
		add("peers", fmt.Sprintf("Failing: %d of %s refuse their configuration", f.refusing, faults.Count(f.clients(), "client")))
	case c != nil && !c.Valid():
		v.State = livestate.Degraded
		if c.Permissive {
			add("problems", "Degraded: served despite "+faults.Count(c.Faults, "error"))
		} else {
			add("problems", fmt.Sprintf("Degraded: the %s has errors, clients keep what they have", c.Place))
		}
	case c != nil && c.GoneSince != nil:
		v.State = livestate.Degraded
		add("problems", fmt.Sprintf("Degraded: the %s does not answer, clients keep what they have", c.Place))
	case c != nil && c.Waiting != "":
		v.State = livestate.Degraded
		add("problems", "Degraded: a change waits")
	case c != nil && c.Published.Errors > 0:
		v.State = livestate.Degraded
		add("problems", fmt.Sprintf("Degraded: published with %s", faults.Count(c.Published.Errors, "error")))
	case f.late > 0:
		v.State = livestate.Degraded
		add("peers", fmt.Sprintf("Degraded: %d of %s do not answer", f.late, faults.Count(f.clients(), "client")))
	case f.clients() == 0 && c == nil:
		v.State = livestate.Unknown
		add("peers", "Unknown: no client is connected")
	case f.clients() == 0:
		v.State = livestate.Healthy
		add("peers", "Healthy: ready, no client is connected")
	default:
		v.State = livestate.Healthy
		add("peers", "Healthy: "+faults.Count(f.clients(), "client"))
	}
	if c != nil {
		valid := "valid"
		if !c.Valid() {
			valid = "with " + faults.Count(c.Faults, "error")
		}
		if c.Published != nil && c.Published.Warnings > 0 {
			valid += ", " + faults.Count(c.Published.Warnings, "warning")
		}
		add("plane", fmt.Sprintf("%s %s %s", c.Place, c.Name, valid))
	}
	if f.clients() > 0 {
		add("peers", fmt.Sprintf("%d in sync, %d behind, %d refusing", f.inSync, f.behind, f.refusing))
	}
	if c != nil && c.Published != nil {
		add("plane", fmt.Sprintf("%s, %s", faults.Count(c.Published.Services, "service"), faults.Count(c.Published.Policies, "policy")))
		v.Parts = append(v.Parts, livestate.Part{About: "plane", Text: "published", At: c.Published.At})
	}
	return v
}

// planeOverview judges the control plane, and adds its problems.
func (v *view) planeOverview(o *overview) *planeView {
	p := v.handler.plane
	facts := planeFacts{}
	view := &planeView{}
	if v.handler.configuration != nil {
		state := v.handler.configuration()
		facts.configuration, view.Configuration = &state, &state
		o.Problems = append(o.Problems, configurationProblems(&state)...)
	}
	refusals := make(map[string]int)
	if p.server != nil {
		for _, c := range p.overview(v.handler.refresh) {
			switch standing(&c, time.Now()) {
			case refusing:
				facts.refusing++
				for i := range c.Types {
					if c.Types[i].Refusing {
						addRefusal(o, refusals, &c, &c.Types[i])
					}
				}
			case late:
				facts.late++
				facts.behind++
			case behind:
				facts.behind++
			default:
				facts.inSync++
			}
		}
	}
	view.Verdict = withoutAges(facts.judge())
	return view
}

// configurationProblems returns what is wrong with the documents.
func configurationProblems(s *planestate.State) (all []problemView) {
	severity := livestate.Degraded
	if s.Published == nil {
		severity = livestate.Failing
	}
	for _, p := range s.Problems() {
		all = append(all, problemView{Problem: livestate.Problem{
			Severity: severity, Kind: "documents", Subject: s.Place + " " + s.Name, Text: p.Text(true), Since: p.Since,
		}})
	}
	return all
}

// addRefusal adds a NACK. Clients with the same reason share a problem.
func addRefusal(o *overview, known map[string]int, c *controlplane.ClientStatus, t *controlplane.TypeStatus) {
	if t.NACK == nil {
		return
	}
	text := t.NACK.Err.Message()
	if same, ok := known[t.TypeURL+text]; ok {
		o.Problems[same].Others++
		return
	}
	if len(o.Problems) >= livestate.MaxProblems {
		o.More++
		return
	}
	o.Problems = append(o.Problems, problemView{Problem: livestate.Problem{
		Severity: livestate.Failing, Kind: "client", Subject: "client " + c.Node.GetId(),
		Text: fmt.Sprintf("refuses %s version %s: %s", typeurl.ShortName(t.TypeURL), t.NACK.Version, text),
	}})
	known[t.TypeURL+text] = len(o.Problems) - 1
}

// The standings of a client.
const (
	inSync   = "in sync"
	behind   = "behind"
	late     = "late"
	refusing = "refusing"
)

// standing says how a client stands with what it was sent.
func standing(c *controlplane.ClientStatus, now time.Time) string {
	s := inSync
	for i := range c.Types {
		switch t := &c.Types[i]; {
		case t.Refusing:
			return refusing
		case t.Reply == controlplane.ReplyAwaited && now.Sub(t.SentAt) > longBehind:
			s = late
		case t.Reply == controlplane.ReplyAwaited && s == inSync:
			s = behind
		}
	}
	return s
}

// standings are those that a viewer may ask for. Who is late is behind.
func hasStanding(c *controlplane.ClientStatus, wanted string) bool {
	s := standing(c, time.Now())
	return wanted == "" || wanted == s || wanted == behind && s == late || wanted == "trouble" && slices.Contains([]string{refusing, late}, s)
}
