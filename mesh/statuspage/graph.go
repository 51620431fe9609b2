package statuspage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/xdsclient"
)

// graphView is the resources that a channel uses, from its Listener to its endpoints: the routes
// that are shown, the clusters that these lead to, and the endpoints of a few of them.
type graphView struct {
	// Channels are those to choose from, and Channel is the one that is shown; 0: none.
	Channels []channelChoice `json:"channels"`
	Channel  uint64          `json:"channel"`
	// Why is the reason if there is no graph.
	Why      string          `json:"why,omitempty"`
	Config   *inspect.Config `json:"config,omitempty"`
	Listener *resourceView   `json:"listener,omitempty"`
	// RouteConfig is nil if the Listener has the routes inline.
	RouteConfig *resourceView   `json:"route_config,omitempty"`
	Host        *hostView       `json:"host,omitempty"`
	Routes      list[routeView] `json:"routes"`
	Clusters    []clusterView   `json:"clusters"`
	// Choose is set if there are too many routes to show them without a choice or a search. Chosen is the name of the
	// cluster that the graph is of, if one was chosen.
	Choose bool   `json:"choose,omitempty"`
	Chosen string `json:"chosen,omitempty"`
	// MoreClusters is how many clusters the routes that are shown lead to besides.
	MoreClusters int `json:"more_clusters,omitempty"`
}

type channelChoice struct {
	Number uint64 `json:"number"`
	Target string `json:"target"`
}

// hostView is the virtual host for the channel.
type hostView struct {
	Name    string   `json:"name"`
	Domains []string `json:"domains"`
	// Others is the number of virtual hosts that are not for the channel.
	Others int `json:"others,omitempty"`
}

// routeView is a route of the virtual host.
type routeView struct {
	Index int    `json:"index"`
	Name  string `json:"name,omitempty"`
	Match string `json:"match"`
	// Action is what becomes of RPCs that are not forwarded.
	Action string            `json:"action,omitempty"`
	To     []destinationView `json:"to,omitempty"`
}

// destinationView is a cluster that a route leads to.
type destinationView struct {
	Cluster string `json:"cluster"`
	// ID identifies the cluster among those of the graph. It is empty if a header names the
	// cluster.
	ID      string  `json:"id,omitempty"`
	Percent float64 `json:"percent"`
	Mirror  bool    `json:"mirror,omitempty"`
	// Traffic is the share of the channel's RPCs of the last minute that went this way, in percent.
	Traffic float64 `json:"traffic,omitempty"`
}

const (
	choicesShown      = 100
	domainsShown      = 10
	routesShown       = 20
	destinationsShown = 20 // of a route
	graphClusters     = 40
)

func (v *view) graph(w wanted) any {
	g := graphView{Channels: []channelChoice{}, Routes: list[routeView]{Items: []routeView{}}, Clusters: []clusterView{}}
	number := w.get("channel")
	var channel *inspect.Channel
	for i := range v.snap.channels {
		c := &v.snap.channels[i]
		if channel == nil && number == "" || fmt.Sprint(c.Number) == number {
			channel = c
		}
		if i < choicesShown {
			g.Channels = append(g.Channels, channelChoice{c.Number, c.Target})
		}
	}
	switch {
	case channel != nil:
		g.Channel = channel.Number
		v.channelGraph(&g, w, channel)
	case number != "":
		g.Why = "The channel is closed."
	default:
		g.Why = "The process has no xDS channel in use. A channel is in use from its first RPC, or Connect, on."
	}
	return &g
}

// channelGraph fills in the graph of a channel.
func (v *view) channelGraph(g *graphView, w wanted, channel *inspect.Channel) {
	client, routes, why := v.snap.routesOf(channel)
	config := channel.Config
	if g.Config, g.Why = config, why; client == nil {
		return
	}
	g.Listener = v.node(client, typeurl.Listener, config.Listener)
	if config.Routes != "" && g.Listener.Cached {
		g.RouteConfig = v.node(client, typeurl.RouteConfiguration, config.Routes)
	}
	if routes == nil {
		return
	}
	host := routes.VirtualHost(config.Authority)
	if host == nil {
		g.Why = fmt.Sprintf("None of the %d virtual hosts is for the channel.", len(routes.VirtualHosts))
		return
	}
	g.Host = &hostView{Name: host.Name, Domains: first(host.Domains, domainsShown), Others: len(routes.VirtualHosts) - 1}
	g.routes(w, host, channel.Target)
	v.clustersOf(g, w.get("cluster"), channel, client)
}

// node describes a resource of a client; one that is not watched has no state.
func (v *view) node(client *xdsclient.Dump, typeURL, name string) *resourceView {
	e := findEntry(client, typeURL, name)
	if e == nil {
		return &resourceView{ResourceStatus: explain.ResourceStatus{Type: typeurl.ShortName(typeURL), Name: name}}
	}
	r := v.resource(e)
	return &r
}

// routes fills in the routes that are asked for, and the names of the clusters they lead to: those of one cluster or of one
// route if one was chosen.
func (g *graphView) routes(w wanted, host *xdsresource.VirtualHost, target string) {
	route, chosen := w.get("route"), chosenCluster(host, w.get("cluster"))
	g.Chosen = chosen
	if g.Choose = len(host.Routes) > routesShown && w.text == "" && route == "" && chosen == ""; g.Choose {
		g.Routes.Total = len(host.Routes)
		return
	}
	traffic := trafficOf(target)
	all := make([]int, len(host.Routes))
	for i := range all {
		all[i] = i
	}
	g.Routes = listOf(w, all, routesShown, func(i int) bool {
		r := host.Routes[i]
		switch {
		case route != "" && route != strconv.Itoa(i),
			route == "" && chosen != "" && !leadsTo(r, func(cluster string) bool { return cluster == chosen }):
			return false
		}
		return w.finds(r.Name, r.Match.Path) || leadsTo(r, func(cluster string) bool { return w.finds(cluster) })
	}, func(i int) routeView { return viewRoute(i, host.Routes[i], traffic) })
	if chosen != "" && route == "" {
		g.add(inspect.Cluster{Name: chosen}, "")
		return
	}
	seen := make(map[string]bool)
	for _, r := range g.Routes.Items {
		for name := range host.Routes[r.Index].Clusters {
			switch {
			case seen[name]:
			case len(g.Clusters) < graphClusters:
				g.add(inspect.Cluster{Name: name}, "")
			default:
				g.MoreClusters++
			}
			seen[name] = true
		}
	}
}

// chosenCluster returns the name of the cluster with an ID that routes lead to, or "".
func chosenCluster(host *xdsresource.VirtualHost, id string) string {
	if id == "" {
		return ""
	}
	for cluster := range host.Clusters {
		if clusterID(cluster) == id {
			return cluster
		}
	}
	return ""
}

// trafficOf returns the share of the RPCs of a target that took each route to each cluster in the last minute, in
// percent.
func trafficOf(target string) map[outcomes.Key]float64 {
	shares, all := make(map[outcomes.Key]float64), 0.0
	for _, r := range outcomes.Reports() {
		if r.Target == target && r.Cluster != "" {
			shares[outcomes.Key{Route: r.Route, Cluster: r.Cluster}] += float64(r.Minute.Started)
			all += float64(r.Minute.Started)
		}
	}
	for k, n := range shares {
		shares[k] = math.Round(100 * n / max(all, 1))
	}
	return shares
}

// clusterID identifies a cluster in the addresses of the page. Names may be too long for that.
func clusterID(cluster string) string {
	sum := sha256.Sum256([]byte(cluster))
	return hex.EncodeToString(sum[:8])
}

func leadsTo(r *xdsresource.Route, wanted func(cluster string) bool) bool {
	return slices.ContainsFunc(slices.Collect(r.Clusters), wanted)
}

func viewRoute(i int, r *xdsresource.Route, traffic map[outcomes.Key]float64) routeView {
	label := outcomes.RouteLabel(r.Name, r.Match.Paths())
	view := routeView{Index: i, Name: r.Name, Match: explain.DescribeMatch(&r.Match)}
	switch a := r.Action.(type) {
	case *xdsresource.DirectResponse:
		view.Action = fmt.Sprintf("fails with %v (status %d)", a.Code, a.HTTPStatus)
	case *xdsresource.Redirect:
		view.Action = fmt.Sprintf("fails with %v (redirect, status %d)", a.Code, a.HTTPStatus)
	case *xdsresource.Unroutable:
		view.Action = "fails with UNAVAILABLE: " + a.Reason
	}
	to := func(cluster, header string, d destinationView) {
		if d.Cluster, d.ID = cluster, clusterID(cluster); cluster == "" {
			d.Cluster, d.ID = "the cluster that the header "+header+" names", ""
		}
		if len(view.To) < destinationsShown {
			view.To = append(view.To, d)
		}
	}
	if forward, ok := r.Action.(*xdsresource.Forward); ok {
		for i := range forward.Clusters {
			c := &forward.Clusters[i]
			to(c.Name, c.Header, destinationView{Percent: 100 * float64(c.Weight) / float64(forward.TotalWeight()), Traffic: traffic[outcomes.Key{Route: label, Cluster: c.Name}]})
		}
	}
	for i := range r.Mirrors {
		m, share := &r.Mirrors[i], 100.0
		if m.FractionPerMillion != nil {
			share = float64(*m.FractionPerMillion) / (matching.Million / 100)
		}
		to(m.Cluster, m.Header, destinationView{Percent: share, Mirror: true})
	}
	return view
}

// routesOf returns the client of a channel and the routes that the channel has, nil if they are not known, and why there are no routes.
func (s *snapshot) routesOf(c *inspect.Channel) (client *xdsclient.Dump, routes *xdsresource.RouteConfiguration, why string) {
	config := c.Config
	if config == nil {
		return nil, nil, c.Why
	}
	of := slices.IndexFunc(s.clients, func(d *xdsclient.Dump) bool { return d.BootstrapFingerprint == config.Client })
	if of < 0 {
		return nil, nil, "The channel's client is not known any more."
	}
	client = s.clients[of]
	listener := valueOf[*xdsresource.Listener](client, typeurl.Listener, config.Listener)
	switch {
	case listener == nil && c.Mode == string(channels.DNS):
		return client, nil, "DNS resolves the channel: " + c.Reason
	case listener == nil:
		return client, nil, "There is no Listener yet."
	case config.Routes != "":
		routes = valueOf[*xdsresource.RouteConfiguration](client, typeurl.RouteConfiguration, config.Routes)
	default:
		routes = listener.RouteConfig
	}
	if routes == nil {
		why = "There is no RouteConfiguration yet."
	}
	return client, routes, why
}

// clusterView is a cluster of the graph, as the channel has it, with the names and uses of its members and the endpoints that are
// shown.
type clusterView struct {
	inspect.Cluster
	ID string `json:"id"`
	// Of is the aggregate cluster that has this one as a member.
	Of string `json:"of,omitempty"`
	// Reasons are why its members, or its priorities, are in use or not.
	Reasons    []string      `json:"reasons,omitempty"`
	Resource   *resourceView `json:"resource,omitempty"`
	Assignment *resourceView `json:"assignment,omitempty"`
	// Endpoints and Usable count the endpoints of the ClusterLoadAssignment: all of them, and
	// those that may get RPCs by their health in the resource.
	Endpoints int `json:"endpoints"`
	Usable    int `json:"usable"`
	// More is how many endpoints of Priorities are not shown.
	More int `json:"more,omitempty"`
}

const (
	membersShown = 20
	// chosenEndpoints bounds the endpoints of the cluster that the viewer has chosen;
	// otherEndpoints those of all others. Clusters with more are folded.
	chosenEndpoints = 200
	otherEndpoints  = 40
	// unfoldedClusters is up to how many clusters all are unfolded.
	unfoldedClusters = 8
	addressesShown   = 4
	// askingTime bounds how long the balancer is asked about clusters.
	askingTime = time.Second
)

// add adds a cluster that is not there yet.
func (g *graphView) add(c inspect.Cluster, of string) {
	if !slices.ContainsFunc(g.Clusters, func(other clusterView) bool { return other.Name == c.Name }) {
		g.Clusters = append(g.Clusters, clusterView{Cluster: c, ID: clusterID(c.Name), Of: of})
	}
}

// clustersOf fills in the clusters that the shown routes lead to, and the members of
// aggregate ones, as the channel has them.
func (v *view) clustersOf(g *graphView, chosen string, channel *inspect.Channel, client *xdsclient.Dump) {
	ctx, cancel := context.WithTimeout(v.ctx, askingTime)
	defer cancel()
	for i := range g.Clusters {
		if live, ok := channel.Source.Cluster(ctx, g.Clusters[i].Name); ok {
			g.Clusters[i].Cluster = live
		}
	}
	room := otherEndpoints
	for i := 0; i < len(g.Clusters); i++ {
		for _, m := range first(g.Clusters[i].Members, membersShown) {
			if len(g.Clusters) < 2*graphClusters {
				g.add(m.Cluster, g.Clusters[i].Name)
			}
		}
		c := &g.Clusters[i]
		v.fill(c, client)
		switch {
		case c.ID == chosen:
			c.unfold(chosenEndpoints)
		case c.Endpoints > room || len(g.Clusters) > unfoldedClusters:
			c.Priorities = nil
		default:
			c.unfold(room)
			room -= c.Endpoints
		}
	}
}

// fill fills in what is known of a cluster beside what the channel says.
func (v *view) fill(c *clusterView, client *xdsclient.Dump) {
	if _, isPlugin := xdsresource.PluginName(c.Name); !isPlugin { // which has no Cluster
		c.Resource = v.node(client, typeurl.Cluster, c.Name)
	}
	if c.Phase == "" { // the channel does not have it
		return
	}
	c.Reasons = first(livestate.Reasons(&c.Cluster), max(membersShown, len(c.Priorities)))
	c.Members = first(c.Members, membersShown)
	for i := range c.Members {
		c.Members[i].Cluster = inspect.Cluster{Name: c.Members[i].Cluster.Name}
	}
	if c.Kind == xdsresource.ClusterEDS.String() {
		c.Assignment = v.node(client, typeurl.Endpoints, c.Service)
	}
	c.Traffic = nil
	for i := range c.Priorities {
		for e := range livestate.EndpointsOf(&c.Priorities[i]) {
			if c.Endpoints++; e.Usable() {
				c.Usable++
			}
		}
	}
}

// unfold leaves out the endpoints beyond a limit.
func (c *clusterView) unfold(limit int) {
	for i := range c.Priorities {
		p := &c.Priorities[i]
		localities := p.Localities
		p.Localities = []inspect.Locality{}
		for _, l := range localities {
			shown := min(len(l.Endpoints), limit)
			limit -= shown
			c.More += len(l.Endpoints) - shown
			if shown == 0 && len(l.Endpoints) > 0 {
				continue
			}
			l.Endpoints = first(l.Endpoints, shown)
			for i := range l.Endpoints {
				l.Endpoints[i].Addresses = first(l.Endpoints[i].Addresses, addressesShown)
			}
			p.Localities = append(p.Localities, l)
		}
	}
}
