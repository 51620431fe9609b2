package controlplane

import (
	"cmp"
	"math"
	"slices"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/dynxds/dynxds/internal/bounds"
)

// ClusterLoad is the load of one cluster: the sum of all reports of all clients.
type ClusterLoad struct {
	// Cluster is the name of the Cluster, Service the service_name of its EDS
	// config, which may be empty.
	Cluster, Service string
	// Dropped has the number of dropped RPCs by category of drop_overloads; TotalDropped is
	// that of all dropped RPCs.
	Dropped      map[string]uint64
	TotalDropped uint64
	// Localities are ordered by region, zone and sub-zone.
	Localities []LocalityLoad
}

// LocalityLoad is the load of one locality of a cluster.
type LocalityLoad struct {
	Region, Zone, SubZone     string
	Issued, Succeeded, Failed uint64
	// InProgress is the sum of the last reports of the connected clients.
	InProgress uint64
	// Metrics are what the backends reported to the clients (ORCA), by their names in
	// lrs_report_endpoint_metrics, for example "cpu_utilization" or "named_metrics.foo".
	Metrics map[string]MetricLoad
}

// MetricLoad is the sum of a metric over the RPCs that reported it, and their number.
type MetricLoad struct {
	RPCs uint64
	Sum  float64
}

// Snapshot returns a copy of the load of all clusters, ordered by name and service.
func (l *LoadReports) Snapshot() []ClusterLoad {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.snapshot()
}

func (l *LoadReports) snapshot() []ClusterLoad {
	loads := make([]ClusterLoad, 0, len(l.loads))
	for key, c := range l.loads {
		loads = append(loads, c.load(key))
	}
	slices.SortFunc(loads, func(a, b ClusterLoad) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Service, b.Service))
	})
	return loads
}

// clusterLoad is the sum of the reports of one cluster. Guarded by LoadReports.mu, as the following types are.
type clusterLoad struct {
	kept
	dropped      map[string]*categoryLoad
	totalDropped uint64
	localities   map[localityKey]*localityLoad
}

// categoryLoad is the number of the dropped RPCs of one category.
type categoryLoad struct {
	kept
	dropped uint64
}

type localityKey struct{ region, zone, subZone string }

// localityLoad is the sum of the reports of one locality.
type localityLoad struct {
	kept
	issued, succeeded, failed, inProgress uint64
	metrics                               map[string]*metricLoad
}

type metricLoad struct {
	kept
	MetricLoad
}

// report is a report of a client that is being added. Its methods return whether a sum has changed.
type report struct {
	stream *loadStream
	// at is when it was received.
	at age
}

func (r *report) add(stats *endpointpb.ClusterStats) (hasCounts bool) {
	l := r.stream.reports
	key := loadKey{stats.GetClusterName(), stats.GetClusterServiceName()}
	c := l.loads[key]
	if c == nil {
		k, ok := r.keep(clusterBytes+len(key.cluster)+len(key.service), func() bool { return true })
		if !ok {
			return false
		}
		c = &clusterLoad{kept: k, dropped: make(map[string]*categoryLoad), localities: make(map[localityKey]*localityLoad)}
		l.loads[key] = c
		hasCounts = true
	}
	c.at = r.at
	c.totalDropped += stats.GetTotalDroppedRequests()
	hasCounts = hasCounts || stats.GetTotalDroppedRequests() > 0
	for _, d := range stats.GetDroppedRequests() {
		hasCounts = r.addDropped(c, d) || hasCounts
	}
	for _, s := range stats.GetUpstreamLocalityStats() {
		hasCounts = r.addLocality(c, s) || hasCounts
	}
	return hasCounts
}

func (r *report) addDropped(c *clusterLoad, d *endpointpb.ClusterStats_DroppedRequests) (hasCounts bool) {
	n := c.dropped[d.GetCategory()]
	if n == nil {
		k, ok := r.keep(loadBytes+len(d.GetCategory()), func() bool { return len(c.dropped) < bounds.LoadNames })
		if !ok {
			return false
		}
		n = &categoryLoad{kept: k}
		c.dropped[d.GetCategory()] = n
		hasCounts = true
	}
	n.at = r.at
	n.dropped += d.GetDroppedCount()
	return hasCounts || d.GetDroppedCount() > 0
}

func (r *report) addLocality(c *clusterLoad, s *endpointpb.UpstreamLocalityStats) (hasCounts bool) {
	key := localityKey{s.GetLocality().GetRegion(), s.GetLocality().GetZone(), s.GetLocality().GetSubZone()}
	l := c.localities[key]
	if l == nil {
		k, ok := r.keep(loadBytes+len(key.region)+len(key.zone)+len(key.subZone), func() bool { return len(c.localities) < bounds.LoadLocalities })
		if !ok {
			return false
		}
		l = &localityLoad{kept: k, metrics: make(map[string]*metricLoad)}
		c.localities[key] = l
		hasCounts = true
	}
	l.at = r.at
	l.issued += s.GetTotalIssuedRequests()
	l.succeeded += s.GetTotalSuccessfulRequests()
	l.failed += s.GetTotalErrorRequests()
	hasCounts = hasCounts || s.GetTotalIssuedRequests()+s.GetTotalSuccessfulRequests()+s.GetTotalErrorRequests() > 0
	hasCounts = r.stream.setInProgress(l, s.GetTotalRequestsInProgress()) || hasCounts
	hasCounts = r.measure(l, "cpu_utilization", s.GetCpuUtilization()) || hasCounts
	hasCounts = r.measure(l, "mem_utilization", s.GetMemUtilization()) || hasCounts
	hasCounts = r.measure(l, "application_utilization", s.GetApplicationUtilization()) || hasCounts
	for _, m := range s.GetLoadMetricStats() {
		hasCounts = r.measure(l, m.GetMetricName(), m) || hasCounts
	}
	return hasCounts
}

// setInProgress replaces the number of RPCs that the client has in progress in a locality. It returns whether that
// differs. One for which there is no room is not counted.
func (st *loadStream) setInProgress(l *localityLoad, n uint64) (hasCounts bool) {
	last, known := st.inProgress[l]
	switch {
	case n == last:
		return false
	case !known && st.peer.Take(inProgressBytes) != nil:
		return false
	case n == 0:
		delete(st.inProgress, l)
		st.peer.Give(inProgressBytes)
	default:
		st.inProgress[l] = n
	}
	l.inProgress += n - last
	return true
}

// metricStats is common to both kinds of metrics in a report.
type metricStats interface {
	GetNumRequestsFinishedWithMetric() uint64
	GetTotalMetricValue() float64
}

func (r *report) measure(l *localityLoad, name string, s metricStats) (hasCounts bool) {
	if s.GetNumRequestsFinishedWithMetric() == 0 {
		return false
	}
	m := l.metrics[name]
	sum := s.GetTotalMetricValue()
	if m != nil {
		sum += m.Sum
	}
	// One report must not make the sum of all of them infinite, or no number.
	if math.IsNaN(sum) || math.IsInf(sum, 0) {
		return false
	}
	if m == nil {
		k, ok := r.keep(loadBytes+len(name), func() bool { return len(l.metrics) < bounds.LoadNames })
		if !ok {
			return false
		}
		m = &metricLoad{kept: k}
		l.metrics[name] = m
	}
	m.at = r.at
	m.RPCs += s.GetNumRequestsFinishedWithMetric()
	m.Sum = sum
	return true
}

func (c *clusterLoad) load(key loadKey) ClusterLoad {
	load := ClusterLoad{
		Cluster: key.cluster, Service: key.service,
		Dropped: make(map[string]uint64, len(c.dropped)), TotalDropped: c.totalDropped,
		Localities: make([]LocalityLoad, 0, len(c.localities)),
	}
	for category, n := range c.dropped {
		load.Dropped[category] = n.dropped
	}
	for k, l := range c.localities {
		at := LocalityLoad{
			Region: k.region, Zone: k.zone, SubZone: k.subZone,
			Issued: l.issued, Succeeded: l.succeeded, Failed: l.failed, InProgress: l.inProgress,
			Metrics: make(map[string]MetricLoad, len(l.metrics)),
		}
		for name, m := range l.metrics {
			at.Metrics[name] = m.MetricLoad
		}
		load.Localities = append(load.Localities, at)
	}
	slices.SortFunc(load.Localities, func(a, b LocalityLoad) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.SubZone, b.SubZone))
	})
	return load
}
