package metrics

import "github.com/dynxds/dynxds/mesh/relay"

// AddRelay adds the metrics of a relay, by relay.Relay.Stats, to those of its side that faces clients.
func (p *Plane) AddRelay(stats func() relay.Stats) {
	const name = "dynxds_relay_"
	metrics := []metric{
		gauge(name+"groups", "Groups of clients that are one node upstream."),
		gauge(name+"upstream_streams", "Streams to the control plane."),
		gauge(name+"subscriptions", "Subscriptions at the control plane."),
		gauge(name+"lingering_subscriptions", "Subscriptions at the control plane for which no client is left."),
		gauge(name+"refused_subscriptions", "Subscriptions of clients that the control plane is not asked for, as a limit is reached."),
		gauge(name+"cached_resources", "Variants of resources in the cache, members of collections included."),
		gauge(name+"upstream_unavailable_groups", "Groups whose control plane is unreachable."),
		gauge(name+"upstream_unavailable_since_timestamp_seconds", "Since when the control plane of a group has been unreachable, 0 if all are reachable."),
		counter(name+"streams_served_while_unavailable_total", "Streams of clients that began while the control plane was unreachable, and were served from the cache."),
	}
	p.collect(func(set setter) {
		s := stats()
		for i, value := range []float64{
			float64(s.Groups), float64(s.Upstreams), float64(s.Subscriptions), float64(s.Lingering), float64(s.Refused), float64(s.Cached),
			float64(s.Unreachable), unixSeconds(s.UnreachableSince), float64(s.ServedAway),
		} {
			set(metrics[i], value)
		}
	}, metrics...)
}
