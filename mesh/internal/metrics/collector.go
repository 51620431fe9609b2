package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
	"github.com/dynxds/dynxds/mesh/relay"
)

// collector reads metrics when Prometheus asks for them, all at one moment.
type collector func(reading)

// reading is where a collector writes what it reads.
type reading chan<- prometheus.Metric

// Describe implements prometheus.Collector. It describes nothing, so that the registry takes what Collect has.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) { c(to) }

// gauge returns what writes the values of a gauge, each with those of its labels.
func (r reading) gauge(name, help string, labels ...string) func(value float64, of ...string) {
	return r.metric(prometheus.GaugeValue, name, help, labels)
}

func (r reading) counter(name, help string, labels ...string) func(value float64, of ...string) {
	return r.metric(prometheus.CounterValue, name, help, labels)
}

func (r reading) metric(kind prometheus.ValueType, name, help string, labels []string) func(value float64, of ...string) {
	desc := prometheus.NewDesc(name, help, labels, nil)
	return func(value float64, of ...string) { r <- prometheus.MustNewConstMetric(desc, kind, value, of...) }
}

// collect adds metrics, which read writes.
func (p *Plane) collect(read collector) { p.registry.MustRegister(read) }

// certificates writes how long the certificates that the process presents are valid: to clients, and those of a relay to its
// control plane.
func certificates(to reading) {
	left := to.gauge(namespace+"_certificate_left_seconds", "How long a certificate that the process presents is still valid; negative after its end.", "file")
	lifetime := to.gauge(namespace+"_certificate_lifetime_seconds", "How long a certificate that the process presents is valid in all.", "file")
	for _, c := range certfiles.Identities() {
		left(c.Left().Seconds(), c.File)
		lifetime(c.Lifetime().Seconds(), c.File)
	}
}

// unixSeconds writes a time as Prometheus does, 0 for none.
func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// age returns how long ago a time is, in seconds, 0 for none.
func age(t *time.Time) float64 {
	if t == nil || t.IsZero() {
		return 0
	}
	return time.Since(*t).Seconds()
}

// AddSource adds the metrics of a source of documents, whose changes Seen and Published report. state is called at any
// time.
func (p *Plane) AddSource(state func() planestate.State) {
	p.registry.MustRegister(p.build)
	p.collect(func(to reading) {
		s := state()
		var last planestate.Published
		if s.Published != nil {
			last = *s.Published
		}
		waiting := 0.0
		if s.Waiting != "" {
			waiting = 1
		}
		to.gauge(namespace+"_document_faults", "Faults in the newest documents, for which an older state of them is served, unless by --permissive.")(float64(s.Faults))
		to.gauge(namespace+"_left_out", "Errors in the objects of a cluster for which endpoints, services or policies are left out of what is served.")(float64(last.LeftOut))
		to.gauge(namespace+"_documents_faulty_seconds", "For how long the newest documents have had errors, 0 while they are valid.")(age(s.FaultySince))
		to.gauge(namespace+"_withdrawal_waits", "1 while a change that withdraws more than a third of the services waits, otherwise 0.")(waiting)
		to.gauge(namespace+"_published_timestamp_seconds", "When the last update was published, in Unix time; 0 before the first one.")(unixSeconds(last.At))
		to.gauge(namespace+"_store_lag_seconds", "For how long there have been documents that are not served: with errors or not built yet.")(age(p.unserved.Load()))
		to.gauge(namespace+"_store_gone_seconds", "For how long the store has not answered, 0 while it does.")(age(s.GoneSince))
		to.gauge(namespace+"_documents", "Documents that are served.")(float64(last.Documents))
	})
}

// Seen notes that the source has documents that differ from what is served.
func (p *Plane) Seen() {
	now := time.Now()
	p.unserved.CompareAndSwap(nil, &now)
}

// Published notes that all documents that were seen are served.
func (p *Plane) Published(took time.Duration) {
	p.build.Observe(took.Seconds())
	p.unserved.Store(nil)
}

// AddLoads adds the sums of load reports (LRS), by cluster. snapshot returns those of the clusters that there are, as clients
// may invent others.
func (p *Plane) AddLoads(snapshot func() []controlplane.ClusterLoad) {
	p.collect(func(to reading) {
		rpcs := to.counter(namespace+"_load_rpcs_total", "RPCs that clients have reported, by the outcomes succeeded and failed.", "cluster", "outcome")
		dropped := to.counter(namespace+"_load_dropped_rpcs_total", "RPCs that clients have reported as dropped.", "cluster")
		type sum struct{ succeeded, failed, dropped uint64 }
		sums := make(map[string]sum)
		for _, c := range snapshot() {
			s := sums[c.Cluster] // several if the cluster has changed its service_name
			s.dropped += c.TotalDropped
			for _, at := range c.Localities {
				s.succeeded, s.failed = s.succeeded+at.Succeeded, s.failed+at.Failed
			}
			sums[c.Cluster] = s
		}
		for cluster, s := range sums {
			rpcs(float64(s.succeeded), cluster, "succeeded")
			rpcs(float64(s.failed), cluster, "failed")
			dropped(float64(s.dropped), cluster)
		}
	})
}

// AddRelay adds the metrics of a relay, by relay.Relay.Stats, to those of its side that faces clients.
func (p *Plane) AddRelay(stats func() relay.Stats) {
	p.collect(func(to reading) {
		const name = "dynxds_relay_"
		s := stats()
		to.gauge(name+"groups", "Groups of clients that are one node upstream.")(float64(s.Groups))
		to.gauge(name+"upstream_streams", "Streams to the control plane.")(float64(s.Upstreams))
		to.gauge(name+"subscriptions", "Subscriptions at the control plane.")(float64(s.Subscriptions))
		to.gauge(name+"lingering_subscriptions", "Subscriptions at the control plane for which no client is left.")(float64(s.Lingering))
		to.gauge(name+"refused_subscriptions", "Subscriptions of clients that the control plane is not asked for, as a limit is reached.")(float64(s.Refused))
		to.gauge(name+"cached_resources", "Variants of resources in the cache, members of collections included.")(float64(s.Cached))
		to.gauge(name+"upstream_unavailable_groups", "Groups whose control plane is unreachable.")(float64(s.Unreachable))
		to.gauge(name+"upstream_unavailable_since_timestamp_seconds", "Since when the control plane of a group has been unreachable, 0 if all are reachable.")(unixSeconds(s.UnreachableSince))
		to.counter(name+"streams_served_while_unavailable_total", "Streams of clients that began while the control plane was unreachable, and were served from the cache.")(float64(s.ServedAway))
	})
}
