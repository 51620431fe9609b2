package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynxds/dynxds/mesh/relay"
)

// relayStats collects what a relay has.
type relayStats struct {
	stats  func() relay.Stats
	fields []relayField
}

type relayField struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*relay.Stats) float64
}

// AddRelay adds the metrics of a relay, by relay.Relay.Stats, to those of its side that faces clients.
func (p *Plane) AddRelay(stats func() relay.Stats) {
	field := func(name, help string, kind prometheus.ValueType, value func(*relay.Stats) float64) relayField {
		return relayField{prometheus.NewDesc("dynxds_relay_"+name, help, nil, nil), kind, value}
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	p.registry.MustRegister(&relayStats{stats, []relayField{
		field("groups", "Groups of clients that are one node upstream.", gauge, func(s *relay.Stats) float64 { return float64(s.Groups) }),
		field("upstream_streams", "Streams to the control plane.", gauge, func(s *relay.Stats) float64 { return float64(s.Upstreams) }),
		field("subscriptions", "Subscriptions at the control plane.", gauge, func(s *relay.Stats) float64 { return float64(s.Subscriptions) }),
		field("lingering_subscriptions", "Subscriptions at the control plane for which no client is left.", gauge,
			func(s *relay.Stats) float64 { return float64(s.Lingering) }),
		field("refused_subscriptions", "Subscriptions of clients that the control plane is not asked for, as a limit is reached.", gauge,
			func(s *relay.Stats) float64 { return float64(s.Refused) }),
		field("cached_resources", "Variants of resources in the cache, members of collections included.", gauge,
			func(s *relay.Stats) float64 { return float64(s.Cached) }),
		field("upstream_unavailable_groups", "Groups whose control plane is unreachable.", gauge,
			func(s *relay.Stats) float64 { return float64(s.Unreachable) }),
		field("upstream_unavailable_since_timestamp_seconds", "Since when the control plane of a group has been unreachable, 0 if all are reachable.", gauge,
			func(s *relay.Stats) float64 {
				if s.UnreachableSince.IsZero() {
					return 0
				}
				return float64(s.UnreachableSince.UnixMilli()) / 1000
			}),
		field("streams_served_while_unavailable_total", "Streams of clients that began while the control plane was unreachable, and were served from the cache.", counter,
			func(s *relay.Stats) float64 { return float64(s.ServedAway) }),
	}})
}

// Describe implements prometheus.Collector.
func (r *relayStats) Describe(to chan<- *prometheus.Desc) {
	for _, f := range r.fields {
		to <- f.desc
	}
}

// Collect implements prometheus.Collector. All values are of one moment.
func (r *relayStats) Collect(to chan<- prometheus.Metric) {
	s := r.stats()
	for _, f := range r.fields {
		to <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(&s))
	}
}
