package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynxds/dynxds/internal/certfiles"
)

// certificates collects how long the certificates that the process presents are valid: to clients, and those of a relay to its control
// plane.
type certificates struct{}

var (
	certificateLeft = prometheus.NewDesc(namespace+"_certificate_left_seconds",
		"How long a certificate that the process presents is still valid; negative after its end.", []string{"file"}, nil)
	certificateLifetime = prometheus.NewDesc(namespace+"_certificate_lifetime_seconds",
		"How long a certificate that the process presents is valid in all.", []string{"file"}, nil)
)

// Describe implements prometheus.Collector.
func (certificates) Describe(to chan<- *prometheus.Desc) {
	to <- certificateLeft
	to <- certificateLifetime
}

// Collect implements prometheus.Collector.
func (certificates) Collect(to chan<- prometheus.Metric) {
	for _, c := range certfiles.Identities() {
		to <- prometheus.MustNewConstMetric(certificateLeft, prometheus.GaugeValue, c.Left().Seconds(), c.File)
		to <- prometheus.MustNewConstMetric(certificateLifetime, prometheus.GaugeValue, c.Lifetime().Seconds(), c.File)
	}
}
