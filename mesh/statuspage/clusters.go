package statuspage

import (
	"cmp"
	"slices"
	"time"

	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/outcomes"
)

// clustersView is the clusters of the process, the worst first unless the viewer wants another order.
type clustersView struct {
	list[rowView]
	States []count `json:"states"`
	// Targets is set if rows are of channels with different targets.
	Targets bool `json:"targets,omitempty"`
	// Since is since when RPCs are counted. It is zero if that has just begun.
	Since time.Time `json:"since,omitzero"`
	// Splits are the routes with several clusters that the search leaves, and MoreSplits counts those that are not shown.
	Splits     []splitView `json:"splits,omitempty"`
	MoreSplits int         `json:"more_splits,omitempty"`
}

// splitView compares the clusters of a route by their RPCs of the last minute.
type splitView struct {
	Route    string         `json:"route"`
	Target   string         `json:"target"`
	Clusters []splitCluster `json:"clusters"`
}

type splitCluster struct {
	Name  string   `json:"name"`
	Rate  float64  `json:"rate"` // RPCs in a second
	Ended uint64   `json:"ended"`
	Share string   `json:"share"` // that failed
	P50   *float64 `json:"p50,omitempty"`
	P99   *float64 `json:"p99,omitempty"`
}

// rowView is a cluster.
type rowView struct {
	ID        string              `json:"id"`
	Channel   uint64              `json:"channel,omitempty"`
	Name      string              `json:"name"`
	Target    string              `json:"target,omitempty"`
	Health    livestate.Health    `json:"health"`
	Since     time.Time           `json:"since,omitzero"`
	Error     string              `json:"error,omitempty"`
	Endpoints livestate.Endpoints `json:"endpoints"`
	// Rate is RPCs in a second, of the last ten seconds.
	Rate     float64  `json:"rate"`
	InFlight int64    `json:"in_flight"`
	Ended    uint64   `json:"ended"` // in the last minute
	Failed   uint64   `json:"failed"`
	Share    string   `json:"share"`
	P50      *float64 `json:"p50,omitempty"`
	P99      *float64 `json:"p99,omitempty"`
	Retries  uint64   `json:"retries"`
	Hedges   uint64   `json:"hedges"`
	// Started and Failures are those of each second of the last minute, the oldest first.
	Started  []uint32 `json:"started"`
	Failures []uint32 `json:"failures"`
}

const clustersShown = 25

// orders are the orders that a viewer may ask for. The State is in the order of trouble.
var orders = map[string]func(a, b *livestate.Cluster) int{
	"name":    func(a, b *livestate.Cluster) int { return cmp.Compare(a.Name, b.Name) },
	"traffic": func(a, b *livestate.Cluster) int { return cmp.Compare(minute(b).Started, minute(a).Started) },
	"errors": func(a, b *livestate.Cluster) int {
		return cmp.Or(cmp.Compare(minute(b).Share(), minute(a).Share()), cmp.Compare(minute(b).Failed, minute(a).Failed))
	},
	"latency": func(a, b *livestate.Cluster) int { return cmp.Compare(slowest(b), slowest(a)) },
}

func minute(c *livestate.Cluster) *livestate.Minute {
	if c.RPCs == nil {
		return new(livestate.Minute)
	}
	return &c.RPCs.Minute
}

func slowest(c *livestate.Cluster) float64 {
	if p := minute(c).P99; p != nil {
		return *p
	}
	return 0
}

func (v *view) clusters() any {
	const section = "clusters"
	p := v.pulse()
	find, state := v.query.search(section), v.query.get(section, "state")
	view := clustersView{Since: p.CountingSince}
	states := make(map[string]int)
	found := make([]*livestate.Cluster, 0, len(p.Clusters))
	for _, c := range p.Clusters {
		states[string(c.Health)]++
		view.Targets = view.Targets || c.Target != p.Clusters[0].Target
		if (state == "" || state == string(c.Health)) && find.in(c.Name, c.Target) {
			found = append(found, c)
		}
	}
	if order := orders[v.query.get(section, "sort")]; order != nil {
		slices.SortStableFunc(found, order)
	}
	view.States = counts(states)
	view.list = listOf(len(p.Clusters), found, v.query.from(section), clustersShown, func(c *livestate.Cluster) rowView { return v.row(c, view.Targets) })
	history(view.Items, found[view.From:])
	for i := range p.Splits {
		switch s := &p.Splits[i]; {
		case !find.in(s.Route, s.Target) && !slices.ContainsFunc(s.Clusters, func(c livestate.SplitCluster) bool { return find.in(c.Name) }):
		case len(view.Splits) == livestate.MaxSplits:
			view.MoreSplits++
		default:
			view.Splits = append(view.Splits, viewSplit(s))
		}
	}
	return view
}

func viewSplit(s *livestate.Split) splitView {
	view := splitView{Route: name(s.Route), Target: name(s.Target)}
	for i := range s.Clusters {
		c := &s.Clusters[i]
		m := &c.Minute
		view.Clusters = append(view.Clusters, splitCluster{name(c.Name), m.Rate(), m.Ended, livestate.Percent(m.Share()), m.P50, m.P99})
	}
	return view
}

// row describes a cluster, without its history.
func (v *view) row(c *livestate.Cluster, targets bool) rowView {
	m := minute(c)
	r := rowView{
		ID: clusterID(c.Name), Channel: v.channelOf(c.Target), Name: name(c.Name), Health: c.Health, Since: c.Since, Error: clip(c.Error, maxError),
		Endpoints: c.Endpoints, Ended: m.Ended, Failed: m.Failed, Share: livestate.Percent(m.Share()), P50: m.P50, P99: m.P99,
	}
	if targets {
		r.Target = name(c.Target)
	}
	if c.RPCs != nil {
		r.InFlight, r.Retries, r.Hedges = c.RPCs.InFlight, c.RPCs.Retries, c.RPCs.Hedges
	}
	return r
}

// history fills in what happened in each second.
func history(rows []rowView, of []*livestate.Cluster) {
	index := make(map[outcomes.Key]int, len(rows))
	for i := range rows {
		index[outcomes.Key{Target: of[i].Target, Cluster: of[i].Name}] = i
	}
	all := outcomes.Histories(len(rows), func(k outcomes.Key, add func(int)) {
		k.Route = ""
		if i, ok := index[k]; ok {
			add(i)
		}
	})
	for i := range rows {
		rows[i].Started, rows[i].Failures = split(all[i])
		rows[i].Rate = rateOf(all[i])
	}
}

func split(all []outcomes.Second) (started, failed []uint32) {
	started, failed = make([]uint32, len(all)), make([]uint32, len(all))
	for i, s := range all {
		started[i], failed[i] = s.Started, s.Failed
	}
	return started, failed
}

// rateOf returns the RPCs in a second of the last ten seconds.
func rateOf(all []outcomes.Second) float64 {
	last := all[max(0, len(all)-10):]
	if len(last) == 0 {
		return 0
	}
	n := 0.0
	for _, s := range last {
		n += float64(s.Started)
	}
	return n / float64(len(last))
}
