package statuspage

import (
	"cmp"
	"slices"

	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/xdsclient"
)

const channelsShown = 50

func (v *view) channels(w wanted) any {
	return listOf(w, v.snap.channels, channelsShown, func(c inspect.Channel) bool {
		return w.finds(c.Target, c.Mode, string(c.State))
	}, same)
}

// clientView is an xDS client of the process.
type clientView struct {
	Node      string             `json:"node"`
	Cluster   string             `json:"cluster,omitempty"`
	Bootstrap string             `json:"bootstrap"`
	Targets   []string           `json:"targets"`
	More      int                `json:"more,omitempty"` // targets
	Servers   []livestate.Server `json:"servers"`
	// States counts the resources by their states.
	States map[string]int `json:"states"`
}

const (
	clientsShown = 20
	targetsShown = 20
	serversShown = 20
)

func (v *view) clients(w wanted) any {
	return listOf(w, v.snap.clients, clientsShown, func(c *xdsclient.Dump) bool {
		return w.finds(c.Node.GetId()) || w.finds(c.Targets...)
	}, viewClient)
}

func viewClient(c *xdsclient.Dump) clientView {
	view := clientView{
		Node: c.Node.GetId(), Cluster: c.Node.GetCluster(), Bootstrap: c.BootstrapSource,
		Targets: first(c.Targets, targetsShown), Servers: first(livestate.ServersOf(c), serversShown), States: make(map[string]int),
	}
	view.More = len(c.Targets) - len(view.Targets)
	for i := range c.Resources {
		view.States[string(c.Resources[i].State)]++
	}
	return view
}

// changesView is the last changes, and the RPCs of the process in the last minute, of which they may be the cause.
type changesView struct {
	list[changes.Change]
	outcomes.History
}

func (v *view) changes(w wanted) any {
	return changesView{
		list: listOf(w, changes.Recent(), changes.Max, func(c changes.Change) bool {
			return w.finds(string(c.Kind), c.Type, c.Name, c.To, c.Server, c.Target, c.Detail)
		}, same),
		History: outcomes.Histories(1, func(outcomes.Key) int { return 0 })[0],
	}
}

// resourceView is a resource and how it stands.
type resourceView struct {
	explain.ResourceStatus
	// Client is the node id of the client that has it, if the process has several clients.
	Client string `json:"client,omitempty"`
	// Bytes is the size of the version in use.
	Bytes int `json:"bytes,omitempty"`
	// MoreIgnored is how many ignored fields are not shown.
	MoreIgnored int `json:"more_ignored,omitempty"`
}

// resourcesView is the resources of all clients.
type resourcesView struct {
	list[resourceView]
	// Types and States count all resources.
	Types  map[string]int `json:"types"`
	States map[string]int `json:"states"`
}

const (
	resourcesShown = 25
	fieldsShown    = 20 // ignored ones, of a resource
)

func (v *view) resources(w wanted) any {
	typ, state := w.get("type"), w.get("state")
	view := resourcesView{Types: make(map[string]int), States: make(map[string]int)}
	view.list = listOf(w, v.snap.entries, resourcesShown, func(e *entry) bool {
		short := typeurl.ShortName(e.TypeURL)
		view.Types[short]++
		view.States[string(e.State)]++
		switch {
		case typ != "" && typ != short,
			state == "trouble" && e.Failure == nil,
			state == "ignored" && len(e.Ignored()) == 0,
			state != "" && state != "trouble" && state != "ignored" && state != string(e.State),
			!w.finds(e.Name, e.Version, e.Server):
			return false
		}
		return true
	}, v.resource)
	return view
}

// resource describes a resource with its ignored fields, of which those that matter come first.
func (v *view) resource(e *entry) resourceView {
	r := resourceView{ResourceStatus: *explain.StatusOf(e.ResourceDump), Bytes: len(e.Any().GetValue())}
	if len(v.snap.clients) > 1 {
		r.Client = e.client.Node.GetId()
	}
	r.MoreIgnored = max(0, len(r.Ignored)-fieldsShown)
	r.Ignored = r.Ignored[:len(r.Ignored)-r.MoreIgnored]
	return r
}

// clustersView is the clusters of the process, the worst first unless the viewer wants another order.
type clustersView struct {
	list[rowView]
	States map[string]int `json:"states"` // how many there are of each
	// Targets is set if rows are of channels with different targets.
	Targets bool `json:"targets,omitempty"`
	// Splits are the routes with several clusters that the search leaves, and MoreSplits counts those that are not shown.
	Splits     []livestate.Split `json:"splits,omitempty"`
	MoreSplits int               `json:"more_splits,omitempty"`
}

// rowView is a cluster, without its routes and endpoints.
type rowView struct {
	livestate.Cluster
	ID      string `json:"id"`
	Channel uint64 `json:"channel,omitempty"`
	outcomes.History
}

const clustersShown = 25

// orders are the orders that a viewer may ask for. The State is in the order of trouble.
var orders = map[string]func(a, b *livestate.Cluster) int{
	"name":    func(a, b *livestate.Cluster) int { return cmp.Compare(a.Name, b.Name) },
	"traffic": func(a, b *livestate.Cluster) int { return cmp.Compare(b.Minute().Started, a.Minute().Started) },
	"errors": func(a, b *livestate.Cluster) int {
		return cmp.Or(cmp.Compare(b.Minute().Share(), a.Minute().Share()), cmp.Compare(b.Minute().Failed, a.Minute().Failed))
	},
	"latency": func(a, b *livestate.Cluster) int { return cmp.Compare(slowest(b), slowest(a)) },
}

func slowest(c *livestate.Cluster) float64 {
	if p := c.Minute().P99; p != nil {
		return *p
	}
	return 0
}

func (v *view) clusters(w wanted) any {
	p, state := v.snap.pulse, w.get("state")
	view := clustersView{States: make(map[string]int)}
	all := p.Clusters
	if order := orders[w.get("sort")]; order != nil {
		all = slices.Clone(all)
		slices.SortStableFunc(all, order)
	}
	view.list = listOf(w, all, clustersShown, func(c *livestate.Cluster) bool {
		view.States[string(c.Health)]++
		view.Targets = view.Targets || c.Target != all[0].Target
		return (state == "" || state == string(c.Health)) && w.finds(c.Name, c.Target)
	}, v.row)
	history(view.Items)
	for i := range p.Splits {
		switch s := &p.Splits[i]; {
		case !w.finds(s.Route, s.Target) && !slices.ContainsFunc(s.Clusters, func(c livestate.SplitCluster) bool { return w.finds(c.Name) }):
		case len(view.Splits) == livestate.MaxSplits:
			view.MoreSplits++
		default:
			view.Splits = append(view.Splits, *s)
		}
	}
	return view
}

// row describes a cluster, without its history.
func (v *view) row(c *livestate.Cluster) rowView {
	r := rowView{Cluster: *c, ID: clusterID(c.Name), Channel: v.channelOf(c.Target)}
	r.Routes, r.BadEndpoints, r.Live = nil, nil, nil
	return r
}

// history fills in what happened in each second.
func history(rows []rowView) {
	index := make(map[outcomes.Key]int, len(rows))
	for i := range rows {
		index[outcomes.Key{Target: rows[i].Target, Cluster: rows[i].Name}] = i
	}
	all := outcomes.Histories(len(rows), func(k outcomes.Key) int {
		k.Route = ""
		if i, ok := index[k]; ok {
			return i
		}
		return -1
	})
	for i := range rows {
		rows[i].History = all[i]
	}
}
