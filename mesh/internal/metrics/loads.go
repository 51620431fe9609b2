package metrics

import "github.com/dynxds/dynxds/mesh/controlplane"

// AddLoads adds the sums of load reports (LRS), by cluster. snapshot returns those of the clusters that there are, as clients
// may invent others.
func (p *Plane) AddLoads(snapshot func() []controlplane.ClusterLoad) {
	rpcs := counter(namespace+"_load_rpcs_total", "RPCs that clients have reported, by the outcomes succeeded and failed.", "cluster", "outcome")
	dropped := counter(namespace+"_load_dropped_rpcs_total", "RPCs that clients have reported as dropped.", "cluster")
	p.collect(func(set setter) {
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
			set(rpcs, float64(s.succeeded), cluster, "succeeded")
			set(rpcs, float64(s.failed), cluster, "failed")
			set(dropped, float64(s.dropped), cluster)
		}
	}, rpcs, dropped)
}
