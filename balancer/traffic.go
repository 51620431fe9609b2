package balancer

import "github.com/dynxds/dynxds/balancer/internal/traffic"

// Traffic is the RPCs of the process to one cluster, since the cluster came into use.
type Traffic struct {
	// Cluster and EDSService identify what is counted together (gRFC A32).
	Cluster, EDSService string
	// Started is the number of RPCs, retries included, that were given an endpoint. A rate is
	// the difference of two readings.
	Started uint64
	// InFlight is the number of RPCs in flight, over all channels.
	InFlight int64
	// Refused is the number of RPCs over the limit of circuit_breakers.max_requests.
	Refused uint64
	// Dropped is the number of RPCs dropped for each category of drop_overloads. Categories
	// beyond the first 100 are counted as "(others)".
	Dropped map[string]uint64
}

// TrafficByCluster returns the Traffic of each cluster in use, sorted by name, for diagnostics.
// It is safe for concurrent use.
func TrafficByCluster() []Traffic {
	reports := traffic.Reports()
	all := make([]Traffic, len(reports))
	for i, r := range reports {
		all[i] = Traffic{
			Cluster: r.Cluster, EDSService: r.Service,
			Started: r.Started, InFlight: r.InFlight, Refused: r.Refused, Dropped: r.Dropped,
		}
	}
	return all
}
