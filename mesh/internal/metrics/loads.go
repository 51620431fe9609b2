package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynxds/dynxds/mesh/controlplane"
)

// loads collects what clients report (LRS), by cluster.
type loads struct {
	snapshot      func() []controlplane.ClusterLoad
	rpcs, dropped *prometheus.Desc
}

// AddLoads adds the sums of load reports. snapshot returns those of the clusters that there are, as clients
// may invent others.
func (p *Plane) AddLoads(snapshot func() []controlplane.ClusterLoad) {
	p.registry.MustRegister(&loads{
		snapshot: snapshot,
		rpcs: prometheus.NewDesc(namespace+"_load_rpcs_total", "RPCs that clients have reported, by the outcomes succeeded and failed.",
			[]string{"cluster", "outcome"}, nil),
		dropped: prometheus.NewDesc(namespace+"_load_dropped_rpcs_total", "RPCs that clients have reported as dropped.", []string{"cluster"}, nil),
	})
}

// Describe implements prometheus.Collector.
func (l *loads) Describe(to chan<- *prometheus.Desc) {
	to <- l.rpcs
	to <- l.dropped
}

// Collect implements prometheus.Collector.
func (l *loads) Collect(to chan<- prometheus.Metric) {
	type sum struct{ succeeded, failed, dropped uint64 }
	sums := make(map[string]sum)
	for _, c := range l.snapshot() {
		s := sums[c.Cluster] // several if the cluster has changed its service_name
		s.dropped += c.TotalDropped
		for _, at := range c.Localities {
			s.succeeded, s.failed = s.succeeded+at.Succeeded, s.failed+at.Failed
		}
		sums[c.Cluster] = s
	}
	add := func(desc *prometheus.Desc, value uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), labels...)
	}
	for cluster, s := range sums {
		add(l.rpcs, s.succeeded, cluster, "succeeded")
		add(l.rpcs, s.failed, cluster, "failed")
		add(l.dropped, s.dropped, cluster)
	}
}
