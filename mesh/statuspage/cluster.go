package statuspage

import (
	"cmp"
	"context"
	"time"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/xdsclient"
)

// clusterView is a cluster of the graph.
type clusterView struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// root is the aggregate cluster which the routes name, if it is a member of one. Of is the cluster that it is a member of.
	root       string
	Of         string        `json:"of,omitempty"`
	Kind       string        `json:"kind,omitempty"`
	Policy     string        `json:"policy,omitempty"`
	Members    []memberView  `json:"members,omitempty"`
	Resource   *resourceView `json:"resource"`
	Assignment *resourceView `json:"assignment,omitempty"`
	// Endpoints and Usable count the endpoints of the ClusterLoadAssignment: all of them, and
	// those that may get RPCs by their health in the resource.
	Endpoints int `json:"endpoints"`
	Usable    int `json:"usable"`
	// Chosen is set if the viewer has chosen it, and Unfolded if Live and Priorities are there.
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
	inspect.Cluster
	Why string `json:"why"`
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
// aggregate ones.
func (v *view) clustersOf(g *graphView, channel *inspect.Channel, client *xdsclient.Dump) {
	ctx, cancel := context.WithTimeout(v.ctx, askingTime)
	defer cancel()
	chosen := v.query.get("graph", "cluster")
	room := otherEndpoints
	seen := make(map[string]bool)
	for _, c := range g.Clusters {
		seen[c.Name] = true
	}
	for i := 0; i < len(g.Clusters); i++ {
		c := &g.Clusters[i]
		c.Chosen = c.ID == chosen
		value := v.cluster(client, c)
		if value == nil {
			continue
		}
		c.Kind, c.Policy = value.Kind.String(), value.LBPolicy
		if value.Kind == xdsresource.ClusterAggregate {
			v.members(ctx, g, i, channel, value, seen)
			continue
		}
		assignment := v.assignment(client, c, value)
		if assignment != nil {
			for _, l := range assignment.Localities {
				c.Endpoints += len(l.Endpoints)
				for _, e := range l.Endpoints {
					if e.Health.Usable() {
						c.Usable++
					}
				}
			}
		}
		limit := chosenEndpoints
		if !c.Chosen {
			if c.Endpoints > room || len(g.Clusters) > unfoldedClusters {
				continue
			}
			room -= c.Endpoints
			limit = otherEndpoints
		}
		c.Unfolded = true
		live, ok := liveCluster(ctx, channel, c)
		if ok {
			c.Live = viewLive(&live)
			c.priorities(live.Priorities, limit)
		}
		if len(c.Priorities) == 0 && assignment != nil {
			c.priorities(explain.Priorities(assignment), limit)
		}
	}
}

// cluster fills in the resource of a cluster, and returns its value if there is one.
func (v *view) cluster(client *xdsclient.Dump, c *clusterView) *xdsresource.Cluster {
	e := v.snap.findEntry(client, typeurl.Cluster, c.Name)
	c.Resource = v.node(e, "Cluster", c.Name)
	value, _ := valueOf[*xdsresource.Cluster](e)
	return value
}

// members fills in the members of the i-th cluster, an aggregate one, and adds them to the
// clusters of the graph.
func (v *view) members(ctx context.Context, g *graphView, i int, channel *inspect.Channel, value *xdsresource.Cluster, seen map[string]bool) {
	c := &g.Clusters[i]
	uses := make(map[string]memberView)
	if live, ok := channel.Cluster(ctx, c.Name); ok {
		c.Live = viewLive(&live)
		for i, why := range livestate.MemberReasons(live.Members) {
			m := &live.Members[i]
			uses[m.Cluster.Name] = memberView{InUse: m.Use.InUse, Why: why}
		}
	}
	root, of := cmp.Or(c.root, c.Name), c.Name
	for _, member := range value.Underlying[:min(len(value.Underlying), membersShown)] {
		m := uses[member]
		m.ID, m.Name = clusterID(member), member
		g.Clusters[i].Members = append(g.Clusters[i].Members, m)
		if !seen[member] && len(g.Clusters) < 2*graphClusters {
			seen[member] = true
			g.Clusters = append(g.Clusters, clusterView{ID: clusterID(member), Name: member, root: root, Of: of})
		}
	}
}

// assignment fills in the ClusterLoadAssignment of a cluster, and returns where its endpoints are,
// if that is known.
func (v *view) assignment(client *xdsclient.Dump, c *clusterView, value *xdsresource.Cluster) *xdsresource.Endpoints {
	if value.Kind != xdsresource.ClusterEDS {
		return value.Inline
	}
	e := v.snap.findEntry(client, typeurl.Endpoints, value.EDSServiceName)
	c.Assignment = v.node(e, "ClusterLoadAssignment", value.EDSServiceName)
	endpoints, _ := valueOf[*xdsresource.Endpoints](e)
	return endpoints
}

// liveCluster asks the balancer about a cluster, also the member of an aggregate one.
func liveCluster(ctx context.Context, channel *inspect.Channel, c *clusterView) (inspect.Cluster, bool) {
	live, ok := channel.Cluster(ctx, cmp.Or(c.root, c.Name))
	if !ok || c.root == "" {
		return live, ok
	}
	return memberOf(&live, c.Name)
}

// memberOf finds a member below an aggregate cluster.
func memberOf(live *inspect.Cluster, member string) (inspect.Cluster, bool) {
	for i := range live.Members {
		m := &live.Members[i].Cluster
		if m.Name == member {
			return *m, true
		}
		if found, ok := memberOf(m, member); ok {
			return found, true
		}
	}
	return inspect.Cluster{}, false
}

// viewLive shortens the state of a cluster.
func viewLive(c *inspect.Cluster) *liveView {
	return &liveView{
		Cluster: inspect.Cluster{Phase: c.Phase, State: c.State, Notes: c.Notes, Switching: c.Switching},
		Why:     livestate.Why(c),
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
