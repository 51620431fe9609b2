package relay

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient"
)

// forwardEvery is the least time between two sums of what clients reported.
const forwardEvery = time.Second

// loads sums up the load reports of all clients, and reports the sums to the first management server of
// the clusters' authorities, under the relay's own node.
type loads struct {
	relay   *Relay
	reports *controlplane.LoadReports
	// clusters are those that are reported, with the client that does, which is made with the first.
	clusters map[load.Key]*relayedLoad
	client   *xdsclient.XDSClient
}

// relayedLoad is the load of a cluster.
type relayedLoad struct {
	store *load.Store
	// sent is what was passed on.
	sent    controlplane.ClusterLoad
	cluster *load.Cluster
	// localities are in use as long as the relay runs, as the cluster is.
	localities map[load.LocalityID]*load.Locality
}

func newLoads(r *Relay) *loads {
	opts := r.opts.Loads
	if !r.opts.Access.IsZero() {
		opts.Access = r.opts.Access
	}
	warn := sync.OnceFunc(func() {
		r.log.Warn("a client reports the load of clusters that it may not subscribe to, which is not counted, nor is that of others that do")
	})
	opts.OnDenied = func(string) { warn() }
	return &loads{relay: r, reports: controlplane.NewLoadReports(opts), clusters: make(map[load.Key]*relayedLoad)}
}

// run passes reports on until the context ends, and then what is left.
func (l *loads) run(ctx context.Context) {
	for {
		if _, err := l.reports.Await(ctx, l.forward); err != nil {
			break
		}
		select {
		case <-time.After(forwardEvery):
		case <-ctx.Done():
		}
	}
	l.forward(l.reports.Snapshot())
	if l.client != nil {
		l.client.Close() // after the last report
	}
}

// forward passes on what was reported since it was last called, and reports whether there was anything.
func (l *loads) forward(all []controlplane.ClusterLoad) (news bool) {
	for _, now := range all {
		key := load.Key{Cluster: now.Cluster, Service: now.Service}
		c := l.clusters[key]
		if c == nil {
			store, err := l.storeFor(now.Cluster)
			if err != nil { // New of the relay has made such a client
				l.relay.log.Error("load reports cannot be passed on", "error", err)
				return false
			}
			c = &relayedLoad{store: store, cluster: store.Use(key), localities: make(map[load.LocalityID]*load.Locality)}
			l.clusters[key] = c
		}
		if c.forward(key, now) {
			news = true
		}
	}
	return news
}

// storeFor returns what is reported to the management server of a cluster.
func (l *loads) storeFor(cluster string) (*load.Store, error) {
	config := l.relay.opts.Bootstrap
	if l.client == nil {
		client, err := xdsclient.New(config, l.relay.opts.Client...)
		if err != nil {
			return nil, err
		}
		l.client = client
	}
	servers := config.Servers
	if name, newStyle := xdsname.Authority(cluster); newStyle {
		if a := config.Authorities[name]; a != nil && len(a.Servers) > 0 {
			servers = a.Servers
		}
	}
	return l.client.DecodeOptions(servers[0]).Loads, nil
}

// forward is loads.forward for one cluster. RPCs in progress are those that clients reported last: they
// are no sum over time.
func (c *relayedLoad) forward(key load.Key, now controlplane.ClusterLoad) (news bool) {
	was := make(map[load.LocalityID]controlplane.LocalityLoad, len(c.sent.Localities))
	for _, at := range c.sent.Localities {
		was[idOf(at)] = at
	}
	r := &load.Report{Key: key, TotalDropped: now.TotalDropped - c.sent.TotalDropped, Dropped: make(map[string]uint64)}
	for category, n := range now.Dropped {
		if more := n - c.sent.Dropped[category]; more > 0 {
			r.Dropped[category] = more
		}
	}
	for _, at := range now.Localities {
		id := idOf(at)
		if at.InProgress != was[id].InProgress {
			if c.localities[id] == nil {
				c.localities[id] = c.cluster.Locality(id)
			}
			c.localities[id].SetElsewhere(at.InProgress)
			news = true
		}
		if added := difference(was[id], at); added != nil {
			r.Localities = append(r.Localities, added)
		}
	}
	c.sent = now
	if r.TotalDropped == 0 && len(r.Localities) == 0 {
		return news
	}
	c.store.PutBack([]*load.Report{r})
	return true
}

func idOf(l controlplane.LocalityLoad) load.LocalityID {
	return load.LocalityID{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
}

// difference is the load of a locality that was added, or nil.
func difference(old, now controlplane.LocalityLoad) *load.LocalityReport {
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
