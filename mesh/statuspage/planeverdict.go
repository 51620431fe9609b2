package statuspage

import (
	"fmt"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/clients"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
)

// planeFacts are what the verdict on a control plane is computed from.
type planeFacts struct {
	// configuration is nil if the control plane does not say.
	configuration *planestate.State
	clients.Standings
}

// judge returns the verdict.
func (f *planeFacts) judge() livestate.Verdict {
	v := livestate.Verdict{}
	add := func(about, text string) { v.Parts = append(v.Parts, livestate.Part{About: about, Text: text}) }
	c := f.configuration
	switch {
	case c != nil && c.Published == nil:
		v.State = livestate.Failing
		add("problems", "Failing: nothing is published yet")
	case f.Refusing > 0:
		v.State = livestate.Failing
		add("peers", fmt.Sprintf("Failing: %d of %s refuse their configuration", f.Refusing, faults.Count(f.Clients, "client")))
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
	case f.Late > 0:
		v.State = livestate.Degraded
		add("peers", fmt.Sprintf("Degraded: %d of %s do not answer", f.Late, faults.Count(f.Clients, "client")))
	case f.Clients == 0 && c == nil:
		v.State = livestate.Unknown
		add("peers", "Unknown: no client is connected")
	case f.Clients == 0:
		v.State = livestate.Healthy
		add("peers", "Healthy: ready, no client is connected")
	default:
		v.State = livestate.Healthy
		add("peers", "Healthy: "+faults.Count(f.Clients, "client"))
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
	if f.Clients > 0 {
		add("peers", fmt.Sprintf("%d in sync, %d behind, %d refusing", f.InSync, f.Behind, f.Refusing))
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
	if p.server != nil {
		_, clients := p.count(v.handler)
		facts.Standings = clients.Standings
		for _, r := range clients.Refusals {
			o.Problems = append(o.Problems, problemView{Problem: livestate.Problem{
				Severity: livestate.Failing, Kind: "client", Subject: "client " + r.Client,
				Text: fmt.Sprintf("refuses %s version %s: %s", r.Type, r.Version, r.Error),
			}, Others: r.Clients - 1})
		}
		o.More += clients.MoreRefusals
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

// hasStanding reports whether a client has a standing that a viewer may ask for. Who is late is behind.
func hasStanding(c *controlplane.ClientStatus, wanted string) bool {
	switch s := clients.StandingOf(c, time.Now()); wanted {
	case "":
		return true
	case "trouble":
		return s >= clients.Late
	case clients.Behind.String():
		return s == clients.Behind || s == clients.Late
	default:
		return s.String() == wanted
	}
}
