package relay

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/xdsclient"
)

// forwardEvery is the least time between two sums of the clients' reports.
const forwardEvery = time.Second

// loads sums up the load reports of all clients, and reports the sums to the first management server of
// the clusters' authorities, under the relay's own node.
type loads struct {
	reports *controlplane.LoadReports
	// client reports them.
	client *xdsclient.XDSClient
	// clusters are those that are reported.
	clusters map[load.Key]relayedLoad
}

// relayedLoad is where the load of a cluster is counted.
type relayedLoad struct {
	store   *load.Store
	cluster *load.Cluster
}

func newLoads(r *Relay, client *xdsclient.XDSClient) *loads {
	opts := r.opts.Loads
	if !r.opts.Access.IsZero() {
		opts.Access = r.opts.Access
	}
	opts.OnDenied = func(string) { r.warn("ignoring load reports for clusters that the client may not subscribe to") }
	return &loads{controlplane.NewLoadReports(opts), client, make(map[load.Key]relayedLoad)}
}

// run passes reports on until the context ends, and then the last ones.
func (l *loads) run(ctx context.Context) {
	l.reports.Await(ctx, func([]controlplane.ClusterLoad) bool {
		l.forward(l.reports.Take())
		select {
		case <-time.After(forwardEvery):
		case <-ctx.Done():
		}
		return false
	})
	l.forward(l.reports.Take())
	l.client.Close() // after the last report
}

// forward passes on what was reported since it was last called. What the relay no longer remembers, as it is not
// reported any more, it no longer passes on either.
func (l *loads) forward(all []controlplane.ClusterLoad) {
	known := make(map[load.Key]bool, len(all))
	for _, reported := range all {
		key := load.Key{Cluster: reported.Cluster, Service: reported.Service}
		known[key] = true
		c, counted := l.clusters[key]
		if !counted {
			store := l.storeFor(key.Cluster)
			c = relayedLoad{store, store.Use(key, nil)}
			l.clusters[key] = c
		}
		c.forward(key, reported)
	}
	maps.DeleteFunc(l.clusters, func(key load.Key, c relayedLoad) bool {
		if known[key] {
			return false
		}
		c.cluster.Release()
		return true
	})
}

// storeFor returns the store whose load is reported to the management server of a cluster.
func (l *loads) storeFor(cluster string) *load.Store {
	config := l.client.Bootstrap()
	servers := config.Servers
	if name, newStyle := xdsname.Authority(cluster); newStyle {
		if a := config.Authorities[name]; a != nil && len(a.Servers) > 0 {
			servers = a.Servers
		}
	}
	return l.client.DecodeOptions(servers[0]).Loads
}

// forward is loads.forward for one cluster. RPCs in progress are those that clients reported last: they
// are no sum over time.
func (c relayedLoad) forward(key load.Key, reported controlplane.ClusterLoad) {
	r := &load.Report{Key: key, TotalDropped: reported.TotalDropped, Dropped: reported.Dropped}
	maps.DeleteFunc(r.Dropped, func(_ string, n uint64) bool { return n == 0 })
	inProgress := make(map[load.LocalityID]uint64)
	for _, at := range reported.Localities {
		id := load.LocalityID{Region: at.Region, Zone: at.Zone, SubZone: at.SubZone}
		if at.InProgress > 0 {
			inProgress[id] = at.InProgress
		}
		maps.DeleteFunc(at.Metrics, func(_ string, m controlplane.MetricLoad) bool { return m.RPCs == 0 })
		if max(at.Issued, at.Succeeded, at.Failed) > 0 || len(at.Metrics) > 0 {
			r.Localities = append(r.Localities, localityReport(id, at))
		}
	}
	c.cluster.SetElsewhere(inProgress)
	if r.TotalDropped > 0 || len(r.Localities) > 0 {
		c.store.PutBack([]*load.Report{r})
	}
}

func localityReport(id load.LocalityID, at controlplane.LocalityLoad) *load.LocalityReport {
	r := &load.LocalityReport{ID: id, Named: make(map[string]load.Metric)}
	r.Counts = load.Counts{Issued: at.Issued, Succeeded: at.Succeeded, Failed: at.Failed}
	for name, m := range at.Metrics {
		switch sum := (load.Metric{Count: m.RPCs, Sum: m.Sum}); name {
		case "cpu_utilization":
			r.CPU = sum
		case "mem_utilization":
			r.Memory = sum
		case "application_utilization":
			r.Application = sum
		default:
			r.Named[strings.TrimPrefix(name, "named_metrics.")] = sum
		}
	}
	return r
}
