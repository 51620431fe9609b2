package relay

import (
	"context"
	"maps"
	"strings"
	"sync"
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
	relay   *Relay
	reports *controlplane.LoadReports
	// clusters are those that are reported, with the client that does, which is made with the first.
	clusters map[load.Key]*relayedLoad
	client   *xdsclient.XDSClient
}

// relayedLoad is the load of a cluster.
type relayedLoad struct {
	store *load.Store
	// sent is the load that was passed on.
	sent    controlplane.ClusterLoad
	cluster *load.Cluster
	// localities are the localities with RPCs in progress.
	localities map[load.LocalityID]*load.Locality
}

func newLoads(r *Relay) *loads {
	opts := r.opts.Loads
	if !r.opts.Access.IsZero() {
		opts.Access = r.opts.Access
	}
	warn := sync.OnceFunc(func() {
		r.log.Warn("ignoring load reports for clusters that the client may not subscribe to")
	})
	opts.OnDenied = func(string) { warn() }
	return &loads{relay: r, reports: controlplane.NewLoadReports(opts), clusters: make(map[load.Key]*relayedLoad)}
}

// run passes reports on until the context ends, and then the last ones.
func (l *loads) run(ctx context.Context) {
	l.reports.Await(ctx, func(all []controlplane.ClusterLoad) bool {
		l.forward(all)
		select {
		case <-time.After(forwardEvery):
		case <-ctx.Done():
		}
		return false
	})
	l.forward(l.reports.Snapshot())
	if l.client != nil {
		l.client.Close() // after the last report
	}
}

// forward passes on what was reported since it was last called. What the relay no longer remembers, as it is not
// reported any more, it no longer passes on either.
func (l *loads) forward(all []controlplane.ClusterLoad) {
	known := make(map[load.Key]bool, len(all))
	for _, now := range all {
		key := load.Key{Cluster: now.Cluster, Service: now.Service}
		known[key] = true
		c := l.clusters[key]
		if c == nil {
			store, err := l.storeFor(now.Cluster)
			if err != nil { // New of the relay has made such a client
				l.relay.log.Error("cannot forward load reports", "error", err)
				return
			}
			c = &relayedLoad{store: store, cluster: store.Use(key), localities: make(map[load.LocalityID]*load.Locality)}
			l.clusters[key] = c
		}
		c.forward(key, now)
	}
	maps.DeleteFunc(l.clusters, func(key load.Key, c *relayedLoad) bool {
		if known[key] {
			return false
		}
		c.release(nil)
		c.cluster.Release()
		return true
	})
}

// storeFor returns the store whose load is reported to the management server of a cluster.
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
func (c *relayedLoad) forward(key load.Key, now controlplane.ClusterLoad) {
	was := make(map[load.LocalityID]controlplane.LocalityLoad, len(c.sent.Localities))
	for _, at := range c.sent.Localities {
		was[idOf(at)] = at
	}
	r := &load.Report{Key: key, TotalDropped: now.TotalDropped, Dropped: make(map[string]uint64)}
	if now.TotalDropped >= c.sent.TotalDropped {
		r.TotalDropped -= c.sent.TotalDropped
	}
	for category, n := range now.Dropped {
		if last := c.sent.Dropped[category]; n >= last {
			n -= last
		}
		if n > 0 {
			r.Dropped[category] = n
		}
	}
	inProgress := make(map[load.LocalityID]bool, len(c.localities))
	for _, at := range now.Localities {
		id := idOf(at)
		if at.InProgress > 0 {
			inProgress[id] = true
			if c.localities[id] == nil {
				c.localities[id] = c.cluster.Locality(id)
			}
			c.localities[id].SetElsewhere(at.InProgress)
		}
		if added := difference(was[id], at); added != nil {
			r.Localities = append(r.Localities, added)
		}
	}
	c.release(inProgress)
	c.sent = now
	if r.TotalDropped > 0 || len(r.Localities) > 0 {
		c.store.PutBack([]*load.Report{r})
	}
}

// release ends the use of the localities without RPCs in progress.
func (c *relayedLoad) release(inProgress map[load.LocalityID]bool) {
	maps.DeleteFunc(c.localities, func(id load.LocalityID, l *load.Locality) bool {
		if inProgress[id] {
			return false
		}
		l.SetElsewhere(0)
		c.cluster.ReleaseLocality(l)
		return true
	})
}

func idOf(l controlplane.LocalityLoad) load.LocalityID {
	return load.LocalityID{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
}

// difference is the load of a locality that was added, or nil. A sum that is less than before was forgotten
// (controlplane.LoadReports), and has begun with 0 again.
func difference(old, now controlplane.LocalityLoad) *load.LocalityReport {
	if now.Issued < old.Issued || now.Succeeded < old.Succeeded || now.Failed < old.Failed {
		old.Issued, old.Succeeded, old.Failed = 0, 0, 0
	}
	r := &load.LocalityReport{ID: idOf(now), Named: make(map[string]load.Metric)}
	r.Counts = load.Counts{Issued: now.Issued - old.Issued, Succeeded: now.Succeeded - old.Succeeded, Failed: now.Failed - old.Failed}
	changed := r.Counts != load.Counts{}
	for name, m := range now.Metrics {
		before := old.Metrics[name]
		if m.RPCs < before.RPCs {
			before = controlplane.MetricLoad{}
		}
		if m.RPCs == before.RPCs {
			continue
		}
		changed = true
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
	if !changed {
		return nil
	}
	return r
}
