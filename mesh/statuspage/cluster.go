package statuspage

import (
	"context"
	"time"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// clusterView is a cluster of the graph.
type clusterView struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Of is the cluster that it is a member of.
	Of         string        `json:"of,omitempty"`
	Kind       string        `json:"kind,omitempty"`
	Policy     string        `json:"policy,omitempty"`
	Members    []memberView  `json:"members,omitempty"`
	Resource   *resourceView `json:"resource,omitempty"`
	Assignment *resourceView `json:"assignment,omitempty"`
	// Endpoints and Usable count the endpoints of the ClusterLoadAssignment: all of them, and
	// those that may get RPCs by their health in the resource.
	Endpoints int `json:"endpoints"`
	Usable    int `json:"usable"`
	// Chosen is set if the viewer has chosen it, and Unfolded if Priorities are there.
	Chosen   bool `json:"chosen,omitempty"`
	Unfolded bool `json:"unfolded,omitempty"`
	// Live is what the balancer does with the cluster, without what Members and Priorities have.
	Live *liveView `json:"live,omitempty"`
	// Priorities has the endpoints; More is how many are not shown.
	Priorities []priorityView `json:"priorities,omitempty"`
	More       int            `json:"more,omitempty"`
}

// liveView is the state of a cluster, with the reason in words.
type liveView struct {
	Phase     inspect.Phase `json:"phase"`
	State     inspect.State `json:"state"`
	Notes     string        `json:"notes,omitempty"`
	Switching bool          `json:"switching,omitempty"`
	Why       string        `json:"why"`
}

// priorityView is a priority, with the reason of its use in words.
type priorityView struct {
	inspect.Priority
	Why string `json:"why,omitempty"`
}

// memberView is a member of an aggregate cluster.
type memberView struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	InUse bool   `json:"in_use,omitempty"`
	Why   string `json:"why,omitempty"`
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

// clustersOf fills in the clusters that the shown routes lead to, and the members of
// aggregate ones, as the channel has them.
func (v *view) clustersOf(g *graphView, chosen string, channel *inspect.Channel, client *xdsclient.Dump) {
	ctx, cancel := context.WithTimeout(v.ctx, askingTime)
	defer cancel()
	states := make(map[string]*inspect.Cluster) // of those in the graph
	for _, c := range g.Clusters {
		live, _ := channel.Cluster(ctx, c.Name)
		states[c.Name] = &live
	}
	room := otherEndpoints
	for i := 0; i < len(g.Clusters); i++ {
		state := states[g.Clusters[i].Name]
		for _, m := range state.Members[:min(len(state.Members), membersShown)] {
			if name := m.Cluster.Name; states[name] == nil && len(g.Clusters) < 2*graphClusters {
				states[name] = &m.Cluster
				g.Clusters = append(g.Clusters, clusterView{ID: clusterID(name), Name: name, Of: g.Clusters[i].Name})
			}
		}
		c := &g.Clusters[i]
		c.Chosen = c.ID == chosen
		v.fill(c, state, client)
		limit := chosenEndpoints
		if !c.Chosen {
			if c.Endpoints > room || len(g.Clusters) > unfoldedClusters {
				continue
			}
			room -= c.Endpoints
			limit = otherEndpoints
		}
		c.Unfolded = c.Kind != "" && c.Kind != xdsresource.ClusterAggregate.String()
		c.priorities(state.Priorities, limit)
	}
}

// fill fills in what is known of a cluster but for its endpoints.
func (v *view) fill(c *clusterView, state *inspect.Cluster, client *xdsclient.Dump) {
	if _, isPlugin := xdsresource.PluginName(c.Name); !isPlugin { // which has no Cluster
		c.Resource = v.node(client, typeurl.Cluster, c.Name)
	}
	if state.Name == "" { // the channel does not have it
		return
	}
	c.Kind, c.Policy = state.Kind, state.Policy
	c.Live = &liveView{state.Phase, state.State, state.Notes, state.Switching, livestate.Why(state)}
	for i, why := range livestate.MemberReasons(state.Members)[:min(len(state.Members), membersShown)] {
		m := &state.Members[i]
		c.Members = append(c.Members, memberView{ID: clusterID(m.Cluster.Name), Name: m.Cluster.Name, InUse: m.Use.InUse, Why: why})
	}
	if c.Kind == xdsresource.ClusterEDS.String() {
		c.Assignment = v.node(client, typeurl.Endpoints, state.Service)
	}
	for i := range state.Priorities {
		for e := range livestate.EndpointsOf(&state.Priorities[i]) {
			if c.Endpoints++; e.Usable() {
				c.Usable++
			}
		}
	}
}

// priorities fills in the endpoints, up to a limit.
func (c *clusterView) priorities(all []inspect.Priority, limit int) {
	for i, why := range livestate.PriorityReasons(all) {
		p := priorityView{all[i], why}
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
		c.Priorities = append(c.Priorities, p)
	}
}
