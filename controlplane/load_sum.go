package controlplane

import (
	"cmp"
	"maps"
	"math"
	"slices"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
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

// clusterLoad is the sum of the reports of one cluster. Guarded by LoadReports.mu.
type clusterLoad struct {
	dropped      map[string]uint64
	totalDropped uint64
	localities   map[localityKey]*localityLoad
}

type localityKey struct{ region, zone, subZone string }

// localityLoad is the sum of the reports of one locality. Guarded by LoadReports.mu.
type localityLoad struct {
	issued, succeeded, failed, inProgress uint64
	metrics                               map[string]MetricLoad
}

// add adds a client's report.
func (c *clusterLoad) add(stats *endpointpb.ClusterStats, from *loadStream) {
	c.totalDropped += stats.GetTotalDroppedRequests()
	for _, d := range stats.GetDroppedRequests() {
		if _, known := c.dropped[d.GetCategory()]; known || len(c.dropped) < maxLoadNames && from.reports.take(d.GetCategory()) {
			c.dropped[d.GetCategory()] += d.GetDroppedCount()
		}
	}
	for _, s := range stats.GetUpstreamLocalityStats() {
		key := localityKey{s.GetLocality().GetRegion(), s.GetLocality().GetZone(), s.GetLocality().GetSubZone()}
		l := c.localities[key]
		if l == nil {
			if len(c.localities) == maxLoadLocalities || !from.reports.take(key.region, key.zone, key.subZone) {
				continue
			}
			l = &localityLoad{metrics: make(map[string]MetricLoad)}
			c.localities[key] = l
		}
		l.add(s, from)
	}
}

func (l *localityLoad) add(s *endpointpb.UpstreamLocalityStats, from *loadStream) {
	l.issued += s.GetTotalIssuedRequests()
	l.succeeded += s.GetTotalSuccessfulRequests()
	l.failed += s.GetTotalErrorRequests()
	l.inProgress += s.GetTotalRequestsInProgress() - from.inProgress[l]
	from.inProgress[l] = s.GetTotalRequestsInProgress()
	l.measure("cpu_utilization", s.GetCpuUtilization(), from)
	l.measure("mem_utilization", s.GetMemUtilization(), from)
	l.measure("application_utilization", s.GetApplicationUtilization(), from)
	for _, m := range s.GetLoadMetricStats() {
		l.measure(m.GetMetricName(), m, from)
	}
}

// metricStats is common to both kinds of metrics in a report.
type metricStats interface {
	GetNumRequestsFinishedWithMetric() uint64
	GetTotalMetricValue() float64
}

func (l *localityLoad) measure(name string, s metricStats, from *loadStream) {
	sum := l.metrics[name].Sum + s.GetTotalMetricValue()
	// One report must not make the sum of all of them infinite, or no number.
	if s.GetNumRequestsFinishedWithMetric() == 0 || math.IsNaN(sum) || math.IsInf(sum, 0) {
		return
	}
	m, known := l.metrics[name]
	if !known && (len(l.metrics) == maxLoadNames || !from.reports.take(name)) {
		return
	}
	m.RPCs += s.GetNumRequestsFinishedWithMetric()
	m.Sum = sum
	l.metrics[name] = m
}

func (c *clusterLoad) load(key loadKey) ClusterLoad {
	load := ClusterLoad{
		Cluster: key.cluster, Service: key.service,
		Dropped: maps.Clone(c.dropped), TotalDropped: c.totalDropped,
	}
	for k, l := range c.localities {
		load.Localities = append(load.Localities, LocalityLoad{
			Region: k.region, Zone: k.zone, SubZone: k.subZone,
			Issued: l.issued, Succeeded: l.succeeded, Failed: l.failed, InProgress: l.inProgress,
			Metrics: maps.Clone(l.metrics),
		})
	}
	slices.SortFunc(load.Localities, func(a, b LocalityLoad) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.SubZone, b.SubZone))
	})
	return load
}
