package relay

import (
	"context"
	"strings"
	"time"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/xdsclient"
)

// forwardEvery is the least time between two sums of what clients reported.
const forwardEvery = time.Second

// loads sums up the load reports of all clients, and reports the sum to the first management server of
// the bootstrap, under the relay's own node.
type loads struct {
	relay   *Relay
	reports *controlplane.LoadReports
	// sent is what was passed on, by cluster.
	sent map[load.Key]controlplane.ClusterLoad
	// client and store are made with the first report, and used has the clusters in it.
	client *xdsclient.XDSClient
	store  *load.Store
	used   map[load.Key]struct{}
}

func newLoads(r *Relay) *loads {
	return &loads{
		relay: r, reports: controlplane.NewLoadReports(r.opts.Loads),
		sent: make(map[load.Key]controlplane.ClusterLoad),
		used: make(map[load.Key]struct{}),
	}
}

// run passes reports on until the context ends, and then what is left.
func (l *loads) run(ctx context.Context) {
	for {
		_, err := l.reports.Await(ctx, func(all []controlplane.ClusterLoad) bool {
			reports := l.news(all)
			l.forward(reports)
			return len(reports) > 0
		})
		if err != nil {
			break
		}
		select {
		case <-time.After(forwardEvery):
		case <-ctx.Done():
		}
	}
	l.forward(l.news(l.reports.Snapshot()))
	if l.client != nil {
		l.client.Close() // after the last report
	}
}

// news returns what was reported since it was last called.
func (l *loads) news(all []controlplane.ClusterLoad) (reports []*load.Report) {
	for _, c := range all {
		key := load.Key{Cluster: c.Cluster, Service: c.Service}
		if r := difference(key, l.sent[key], c); r != nil {
			reports = append(reports, r)
		}
		l.sent[key] = c
	}
	return reports
}

// forward adds reports to those that are sent.
func (l *loads) forward(reports []*load.Report) {
	if len(reports) == 0 {
		return
	}
	if l.client == nil {
		client, err := xdsclient.New(l.relay.opts.Bootstrap, l.relay.opts.Client...)
		if err != nil { // New of the relay has made one
			l.relay.log.Error("load reports cannot be passed on", "error", err)
			return
		}
		l.client = client
		l.store = client.DecodeOptions(l.relay.opts.Bootstrap.Servers[0]).Loads
	}
	for _, r := range reports {
		if _, used := l.used[r.Key]; !used { // the store forgets clusters that are not in use
			l.used[r.Key] = struct{}{}
			l.store.Use(r.Key)
		}
	}
	l.store.PutBack(reports)
}

// difference is the load of a cluster that was added, or nil.
func difference(key load.Key, old, now controlplane.ClusterLoad) *load.Report {
	r := &load.Report{Key: key, TotalDropped: now.TotalDropped - old.TotalDropped, Dropped: make(map[string]uint64)}
	for category, n := range now.Dropped {
		if more := n - old.Dropped[category]; more > 0 {
			r.Dropped[category] = more
		}
	}
	was := make(map[load.LocalityID]controlplane.LocalityLoad, len(old.Localities))
	for _, at := range old.Localities {
		was[idOf(at)] = at
	}
	for _, at := range now.Localities {
		if added := localityDifference(was[idOf(at)], at); added != nil {
			r.Localities = append(r.Localities, added)
		}
	}
	if r.TotalDropped == 0 && len(r.Localities) == 0 {
		return nil
	}
	return r
}

func idOf(l controlplane.LocalityLoad) load.LocalityID {
	return load.LocalityID{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
}

// localityDifference is the load of a locality that was added, or nil. RPCs in progress are not among
// it: they are no sum over time.
func localityDifference(old, now controlplane.LocalityLoad) *load.LocalityReport {
	r := &load.LocalityReport{ID: idOf(now), Named: make(map[string]load.Metric)}
	r.Counts = load.Counts{Issued: now.Issued - old.Issued, Succeeded: now.Succeeded - old.Succeeded, Failed: now.Failed - old.Failed}
	news := r.Counts != load.Counts{}
	for name, m := range now.Metrics {
		before := old.Metrics[name]
		if m.RPCs == before.RPCs {
			continue
		}
		news = true
		added := load.Metric{Count: m.RPCs - before.RPCs, Sum: m.Sum - before.Sum}
		switch name {
		case "cpu_utilization":
			r.CPU = added
		case "mem_utilization":
			r.Memory = added
		case "application_utilization":
			r.Application = added
		default:
			r.Named[strings.TrimPrefix(name, "named_metrics.")] = added
		}
	}
	if !news {
		return nil
	}
	return r
}
