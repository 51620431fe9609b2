package statuspage

import (
	"context"
	"slices"
	"time"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// clusterView is a cluster of the graph, as the channel has it. Of its members it has the names and how they are used, and of its endpoints those
// that are shown.
type clusterView struct {
	inspect.Cluster
	ID string `json:"id"`
	// Of is the cluster that it is a member of.
	Of string `json:"of,omitempty"`
	// Why is the reason of its phase in words, and Reasons are those of its members, or of its priorities.
	Why        string        `json:"why,omitempty"`
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
	c.Why, c.Reasons = livestate.Why(&c.Cluster), first(livestate.Reasons(&c.Cluster), max(membersShown, len(c.Priorities)))
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
