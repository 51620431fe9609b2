package balancer

import "github.com/dynxds/dynxds/balancer/internal/traffic"

// Traffic is what the process has on its way to one cluster, and what it did
// not send, since the cluster came into use.
type Traffic struct {
	// Cluster and EDSService are what is counted together (gRFC A32).
	Cluster, EDSService string
	// InFlight is the number of RPCs on their way, over all channels.
	InFlight int64
	// Refused is the number of RPCs that circuit_breakers.max_requests kept
	// out.
	Refused uint64
	// Dropped has the number of RPCs dropped for each category of
	// drop_overloads. Beyond 100 categories, it has the rest as "(others)".
	Dropped map[string]uint64
}

// TrafficByCluster returns the Traffic of every cluster that is in use in the
// process, by name. It may be called from anywhere and is for diagnostics.
func TrafficByCluster() []Traffic {
	reports := traffic.Reports()
	all := make([]Traffic, len(reports))
	for i, r := range reports {
		all[i] = Traffic{
			Cluster: r.Cluster, EDSService: r.Service,
			InFlight: r.InFlight, Refused: r.Refused, Dropped: r.Dropped,
		}
	}
	return all
}
