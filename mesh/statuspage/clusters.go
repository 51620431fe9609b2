package statuspage

import (
	"cmp"
	"slices"

	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/outcomes"
)

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
