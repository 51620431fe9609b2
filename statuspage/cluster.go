package statuspage

import (
	"cmp"
	"context"
	"strings"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// clusterView is a cluster of the graph.
type clusterView struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// full is its name, and root that of the aggregate cluster which the routes name, if it is
	// a member of one. Of is the cluster that it is a member of.
	full, root string
	Of         string        `json:"of,omitempty"`
	Kind       string        `json:"kind,omitempty"`
	Policy     string        `json:"policy,omitempty"`
	Members    []memberView  `json:"members,omitempty"`
	Resource   *resourceView `json:"resource"`
	Assignment *resourceView `json:"assignment,omitempty"`
	// Endpoints and Usable count the endpoints of the ClusterLoadAssignment: all of them, and
	// those that the control plane says may get RPCs.
	Endpoints int `json:"endpoints"`
	Usable    int `json:"usable"`
	// Chosen says that the viewer has chosen it, Unfolded that Live and Priorities are there.
	Chosen   bool      `json:"chosen,omitempty"`
	Unfolded bool      `json:"unfolded,omitempty"`
	Live     *liveView `json:"live,omitempty"`
	// Priorities has the endpoints; More is how many are not shown.
	Priorities []priorityView `json:"priorities,omitempty"`
	More       int            `json:"more,omitempty"`
}

// memberView is a member of an aggregate cluster.
type memberView struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	InUse bool   `json:"in_use,omitempty"`
	Why   string `json:"why,omitempty"`
}

// liveView is what the balancer does with a cluster.
type liveView struct {
	Phase     string `json:"phase"`
	Why       string `json:"why,omitempty"`
	State     string `json:"state"`
	Notes     string `json:"notes,omitempty"`
	Switching bool   `json:"switching,omitempty"`
}

type priorityView struct {
	Number     int            `json:"number"`
	InUse      bool           `json:"in_use,omitempty"`
	State      string         `json:"state,omitempty"`
	Why        string         `json:"why,omitempty"`
	Error      string         `json:"error,omitempty"`
	Localities []localityView `json:"localities"`
}

type localityView struct {
	Name      string         `json:"name"`
	Weight    uint32         `json:"weight"`
	State     string         `json:"state,omitempty"`
	Total     int            `json:"total"` // endpoints
	Endpoints []endpointView `json:"endpoints"`
}

type endpointView struct {
	Addresses []string   `json:"addresses"`
	Health    string     `json:"health"`
	Weight    uint32     `json:"weight"`
	State     string     `json:"state,omitempty"`
	Since     *time.Time `json:"since,omitempty"`
	// Ejected is until when outlier detection keeps it out.
	Ejected     *time.Time `json:"ejected,omitempty"`
	HealthCheck string     `json:"health_check,omitempty"`
	Error       string     `json:"error,omitempty"`
	ErrorTime   *time.Time `json:"error_time,omitempty"`
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
		seen[c.full] = true
	}
	for i := 0; i < len(g.Clusters); i++ {
		c := &g.Clusters[i]
		c.Chosen = c.ID == chosen
		value := v.cluster(client, c)
		if value == nil {
			continue
		}
		c.Kind, c.Policy = value.Kind.String(), name(value.LBPolicy)
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
			c.priorities(prioritiesOf(assignment), limit)
		}
	}
}

// cluster fills in the resource of a cluster, and returns its value if there is one.
func (v *view) cluster(client *xdsclient.Dump, c *clusterView) *xdsresource.Cluster {
	e := v.snap.find(client, typeurl.Cluster, c.full)
	c.Resource = v.node(e, "Cluster", c.full)
	value, _ := valueOf[*xdsresource.Cluster](e)
	return value
}

// members fills in the members of the i-th cluster, an aggregate one, and adds them to the
// clusters of the graph.
func (v *view) members(ctx context.Context, g *graphView, i int, channel *inspect.Channel, value *xdsresource.Cluster, seen map[string]bool) {
	c := &g.Clusters[i]
	uses := make(map[string]inspect.Use)
	if live, ok := channel.Cluster(ctx, c.full); ok {
		c.Live = viewLive(&live)
		for _, m := range live.Members {
			uses[m.Cluster.Name] = m.Use
		}
	}
	root, of := cmp.Or(c.root, c.full), c.Name
	for _, member := range value.Underlying[:min(len(value.Underlying), membersShown)] {
		use := uses[member]
		g.Clusters[i].Members = append(g.Clusters[i].Members, memberView{clusterID(member), name(member), use.InUse, clip(use.Why, maxError)})
		if !seen[member] && len(g.Clusters) < 2*graphClusters {
			seen[member] = true
			g.Clusters = append(g.Clusters, clusterView{ID: clusterID(member), full: member, root: root, Name: name(member), Of: of})
		}
	}
}

// assignment fills in the ClusterLoadAssignment of a cluster, and returns where its endpoints are,
// if that is known.
func (v *view) assignment(client *xdsclient.Dump, c *clusterView, value *xdsresource.Cluster) *xdsresource.Endpoints {
	if value.Kind != xdsresource.ClusterEDS {
		return value.Inline
	}
	e := v.snap.find(client, typeurl.Endpoints, value.EDSServiceName)
	c.Assignment = v.node(e, "ClusterLoadAssignment", value.EDSServiceName)
	endpoints, _ := valueOf[*xdsresource.Endpoints](e)
	return endpoints
}

// liveCluster asks the balancer about a cluster, also the member of an aggregate one.
func liveCluster(ctx context.Context, channel *inspect.Channel, c *clusterView) (inspect.Cluster, bool) {
	live, ok := channel.Cluster(ctx, cmp.Or(c.root, c.full))
	if !ok || c.root == "" {
		return live, ok
	}
	return memberOf(&live, c.full)
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

func viewLive(c *inspect.Cluster) *liveView {
	return &liveView{Phase: string(c.Phase), Why: clip(c.Why, maxError), State: string(c.State), Notes: clip(c.Notes, maxError), Switching: c.Switching}
}

// priorities fills in the endpoints, up to a limit.
func (c *clusterView) priorities(all []inspect.Priority, limit int) {
	for _, p := range all {
		view := priorityView{
			Number: p.Number, InUse: p.Use.InUse, State: string(p.State), Why: clip(p.Use.Why, maxError), Error: clip(p.Use.Error, maxError),
			Localities: []localityView{},
		}
		for _, l := range p.Localities {
			shown := min(len(l.Endpoints), limit)
			limit -= shown
			c.More += len(l.Endpoints) - shown
			if shown == 0 && len(l.Endpoints) > 0 {
				continue
			}
			lv := localityView{localityName(l.Region, l.Zone, l.SubZone), l.Weight, string(l.State), len(l.Endpoints), []endpointView{}}
			for _, e := range l.Endpoints[:shown] {
				lv.Endpoints = append(lv.Endpoints, viewEndpoint(e))
			}
			view.Localities = append(view.Localities, lv)
		}
		c.Priorities = append(c.Priorities, view)
	}
}

func localityName(parts ...string) string {
	var shown []string
	for _, p := range parts {
		if p != "" {
			shown = append(shown, name(p))
		}
	}
	return cmp.Or(strings.Join(shown, " / "), "no locality")
}

func viewEndpoint(e inspect.Endpoint) endpointView {
	view := endpointView{
		Addresses: names(e.Addresses, addressesShown), Health: e.Health, Weight: e.Weight, State: string(e.State),
		HealthCheck: e.HealthCheck, Error: clip(e.Error, maxError),
	}
	if !e.Since.IsZero() {
		view.Since = &e.Since
	}
	if e.Ejection != nil {
		view.Ejected = &e.Ejection.Until
	}
	if !e.ErrorTime.IsZero() {
		view.ErrorTime = &e.ErrorTime
	}
	return view
}

// prioritiesOf returns the endpoints of a resource, of whose connections nothing is known.
func prioritiesOf(assignment *xdsresource.Endpoints) []inspect.Priority {
	var all []inspect.Priority
	byNumber := make(map[uint32]int)
	for i := range assignment.Localities {
		l := &assignment.Localities[i]
		at, ok := byNumber[l.Priority]
		if !ok {
			at = len(all)
			byNumber[l.Priority] = at
			all = append(all, inspect.Priority{Number: int(l.Priority)})
		}
		locality := inspect.Locality{Region: l.ID.Region, Zone: l.ID.Zone, SubZone: l.ID.SubZone, Weight: l.Weight}
		for _, e := range l.Endpoints {
			locality.Endpoints = append(locality.Endpoints, inspect.Endpoint{
				Addresses: append([]string{e.Address}, e.Additional...), Health: corepb.HealthStatus(e.Health).String(), Weight: e.Weight,
			})
		}
		all[at].Localities = append(all[at].Localities, locality)
	}
	return all
}
