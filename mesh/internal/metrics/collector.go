package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynxds/dynxds/internal/certfiles"
)

// metric is one whose values are read when Prometheus asks for them.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func counter(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

// setter says what a metric is, with the values of its labels.
type setter func(m metric, value float64, labels ...string)

// collector reads metrics, all at one moment.
type collector struct {
	metrics []metric
	read    func(setter)
}

// collect adds metrics, which read sets.
func (p *Plane) collect(read func(set setter), metrics ...metric) {
	p.registry.MustRegister(&collector{metrics, read})
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		to <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	c.read(func(m metric, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
	})
}

// addCertificates adds how long the certificates that the process presents are valid: to clients, and those of a relay to its
// control plane.
func (p *Plane) addCertificates() {
	left := gauge(namespace+"_certificate_left_seconds", "How long a certificate that the process presents is still valid; negative after its end.", "file")
	lifetime := gauge(namespace+"_certificate_lifetime_seconds", "How long a certificate that the process presents is valid in all.", "file")
	p.collect(func(set setter) {
		for _, c := range certfiles.Identities() {
			set(left, c.Left().Seconds(), c.File)
			set(lifetime, c.Lifetime().Seconds(), c.File)
		}
	}, left, lifetime)
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
