package statuspage

import (
	"fmt"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/mesh/internal/clients"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
)

// judgePlane returns the verdict on a control plane: by the state of its documents, nil if it does not say, and by its clients.
func judgePlane(c *planestate.State, of clients.Standings) livestate.Verdict {
	problem := ""
	if c != nil {
		for _, p := range first(c.Problems(), 1) {
			problem = p.Text(false)
		}
	}
	count := faults.Count(of.Clients, "client")
	claim := func(holds bool, state livestate.Health, about, text string) livestate.Claim {
		return livestate.Claim{Holds: holds, State: state, About: about, Text: text}
	}
	v := livestate.Judge(
		claim(c != nil && c.Published == nil, livestate.Failing, "problems", "nothing is published yet"),
		claim(of.Refusing > 0, livestate.Failing, "peers", fmt.Sprintf("%d of %s refuse their configuration", of.Refusing, count)),
		claim(problem != "", livestate.Degraded, "problems", problem),
		claim(of.Late > 0, livestate.Degraded, "peers", fmt.Sprintf("%d of %s do not answer", of.Late, count)),
		claim(of.Clients == 0 && c == nil, livestate.Unknown, "peers", "no client is connected"),
		claim(of.Clients == 0, livestate.Healthy, "peers", "ready, no client is connected"),
		claim(true, livestate.Healthy, "peers", count),
	)
	add := func(about, text string) { v.Parts = append(v.Parts, livestate.Part{About: about, Text: text}) }
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
	if of.Clients > 0 {
		add("peers", of.Text())
	}
	if c != nil && c.Published != nil {
		add("plane", fmt.Sprintf("%s, %s", faults.Count(c.Published.Services, "service"), faults.Count(c.Published.Policies, "policy")))
		v.Parts = append(v.Parts, livestate.Part{About: "plane", Text: "published", At: c.Published.At})
	}
	return v
}

// planeOverview judges the control plane, and adds its problems.
func (v *view) planeOverview(o *overview) *planeView {
	view := &planeView{}
	if v.handler.configuration != nil {
		state := v.handler.configuration()
		view.Configuration = &state
		o.Problems = append(o.Problems, configurationProblems(&state)...)
	}
	clients := v.snap.peers().overview
	for _, r := range clients.Refusals {
		o.Problems = append(o.Problems, problemView{Problem: livestate.Problem{
			Severity: livestate.Failing, Kind: "client", Subject: "client " + r.Client,
			Text: fmt.Sprintf("refuses %s version %s: %s", r.Type, r.Version, r.Error),
		}, Others: r.Clients - 1})
	}
	o.More += clients.MoreRefusals
	view.Verdict = judgePlane(view.Configuration, clients.Standings)
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
