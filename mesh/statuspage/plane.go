package statuspage

import (
	"fmt"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/clients"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
)

// peers returns the clients of the control plane, none without one, and the same at a glance.
func (h *handler) peers() (streams []controlplane.ClientStatus, overview *clients.Overview) {
	var loads []controlplane.RecentLoad
	if h.server != nil {
		streams = h.server.Overview()
	}
	if h.server != nil && h.loads != nil {
		loads = h.loads()
	}
	return streams, clients.OverviewOf(streams, loads)
}

// planeTypes are the types whose resources are listed, in order.
var planeTypes = []string{
	typeurl.Listener, typeurl.RouteConfiguration, typeurl.Cluster, typeurl.Endpoints,
	typeurl.Prefix + "envoy.config.route.v3.ScopedRouteConfiguration",
	typeurl.Prefix + "envoy.extensions.transport_sockets.tls.v3.Secret",
}

// served returns what the store has at a version, nothing without a store.
func (h *handler) served() (version uint64, all []*controlplane.Resource) {
	if h.store == nil {
		return 0, nil
	}
	version = h.store.Version()
	for _, t := range planeTypes {
		all = append(all, h.store.Resources(t)...)
	}
	return version, all
}

// servedView is the resources of a control plane.
type servedView struct {
	list[resourceView]
	// StoreVersion counts the changes of the store.
	StoreVersion uint64 `json:"store_version"`
	// Types counts all resources.
	Types map[string]int `json:"types"`
	// Ambiguous is controlplane.Server.AmbiguousChoices.
	Ambiguous uint64 `json:"ambiguous,omitempty"`
}

func (v *view) served(w wanted) any {
	typ := w.get("type")
	version, all := v.snap.served()
	view := servedView{StoreVersion: version, Types: make(map[string]int)}
	view.list = listOf(w, all, resourcesShown, func(r *controlplane.Resource) bool {
		short := typeurl.ShortName(r.Any().GetTypeUrl())
		view.Types[short]++
		return (typ == "" || typ == short) && w.finds(r.Name(), r.Version())
	}, viewServed)
	if v.handler.server != nil {
		view.Ambiguous = v.handler.server.AmbiguousChoices()
	}
	return view
}

func viewServed(r *controlplane.Resource) resourceView {
	view := resourceView{Bytes: len(r.Any().GetValue())}
	view.Type, view.Name, view.Version = typeurl.ShortName(r.Any().GetTypeUrl()), r.Name(), r.Version()
	if p := r.Parameters(); !p.IsZero() {
		view.Variant = p.String()
	}
	return view
}

// peersView is the clients of a control plane.
type peersView struct {
	list[clients.Client]
	clients.Standings
	// Destinations are the first of clients.Overview.
	Destinations     []clients.Destination `json:"destinations"`
	MoreDestinations int                   `json:"more_destinations,omitempty"`
	Partial          int                   `json:"partial,omitempty"`
}

const (
	peersShown       = 25
	peerDestinations = 20
)

func (v *view) peers(w wanted) any {
	o, state := v.snap.overview, w.get("state")
	shown := first(o.Destinations, peerDestinations)
	return peersView{
		Standings: o.Standings, Destinations: shown, MoreDestinations: o.MoreDestinations + len(o.Destinations) - len(shown), Partial: o.Partial,
		list: listOf(w, v.snap.streams, peersShown, func(c controlplane.ClientStatus) bool {
			standing := clients.StandingOf(&c, time.Now())
			return (state == "" || state == standing.String() || state == clients.Behind.String() && standing == clients.Late) && w.finds(c.Node.GetId(), c.Node.GetCluster(), fmt.Sprint(c.Peer))
		}, func(c controlplane.ClientStatus) clients.Client { return clients.ViewOf(&c) }),
	}
}

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
	clients := v.snap.overview
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
