package statuspage

import (
	"fmt"
	"time"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/clients"
)

// peers are the clients of a control plane, and the same at a glance.
type peers struct {
	streams  []controlplane.ClientStatus
	overview *clients.Overview
}

// peers returns the clients of the control plane, none without one.
func (h *handler) peers() (p peers, waited time.Duration) {
	var loads []controlplane.RecentLoad
	if h.server != nil {
		p.streams = h.server.Overview()
	}
	if h.server != nil && h.loads != nil {
		loads = h.loads()
	}
	p.overview = clients.OverviewOf(p.streams, loads)
	return p, 0
}

// planeTypes are the types whose resources are listed, in order.
var planeTypes = []string{
	typeurl.Listener, typeurl.RouteConfiguration, typeurl.Cluster, typeurl.Endpoints,
	typeurl.Prefix + "envoy.config.route.v3.ScopedRouteConfiguration",
	typeurl.Prefix + "envoy.extensions.transport_sockets.tls.v3.Secret",
}

// served is what the store of a control plane has at a version.
type served struct {
	version   uint64
	resources []*controlplane.Resource
}

// served returns what the store has, nothing without one.
func (h *handler) served() (s served, waited time.Duration) {
	if h.store == nil {
		return s, 0
	}
	s.version = h.store.Version()
	for _, t := range planeTypes {
		s.resources = append(s.resources, h.store.Resources(t)...)
	}
	return s, 0
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
	s, typ := v.snap.served(), w.get("type")
	view := servedView{StoreVersion: s.version, Types: make(map[string]int)}
	view.list = listOf(w, s.resources, resourcesShown, func(r *controlplane.Resource) bool {
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
}

const (
	peersShown       = 25
	peerDestinations = 20
)

func (v *view) peers(w wanted) any {
	p, state := v.snap.peers(), w.get("state")
	shown := first(p.overview.Destinations, peerDestinations)
	return peersView{
		Standings: p.overview.Standings, Destinations: shown, MoreDestinations: p.overview.MoreDestinations + len(p.overview.Destinations) - len(shown),
		list: listOf(w, p.streams, peersShown, func(c controlplane.ClientStatus) bool {
			standing := clients.StandingOf(&c, time.Now())
			return (state == "" || state == standing.String() || state == clients.Behind.String() && standing == clients.Late) && w.finds(c.Node.GetId(), c.Node.GetCluster(), fmt.Sprint(c.Peer))
		}, func(c controlplane.ClientStatus) clients.Client { return clients.ViewOf(&c) }),
	}
}
