package controlplane

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

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

// Take returns a Snapshot, and begins all sums again at 0, but for the RPCs in progress. It is for one caller that passes loads on;
// [LoadReports.Recent] does not change.
func (l *LoadReports) Take() []ClusterLoad {
	l.mu.Lock()
	defer l.mu.Unlock()
	loads := l.snapshot()
	for _, s := range l.sums {
		s.TotalDropped = 0
		for category := range s.Dropped {
			s.Dropped[category] = 0
		}
		for _, at := range s.localities {
			at.Issued, at.Succeeded, at.Failed = 0, 0, 0
			for name := range at.Metrics {
				at.Metrics[name] = MetricLoad{}
			}
		}
	}
	return loads
}

func (l *LoadReports) snapshot() []ClusterLoad {
	loads := make([]ClusterLoad, 0, len(l.sums))
	for _, s := range l.sums {
		loads = append(loads, s.copy())
	}
	slices.SortFunc(loads, func(a, b ClusterLoad) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Service, b.Service))
	})
	return loads
}

// recentIntervals is how many reporting intervals Recent covers.
const recentIntervals = 6

// RecentLoad is what clients have reported of a cluster lately.
type RecentLoad struct {
	Cluster                            string
	Issued, Succeeded, Failed, Dropped uint64
	// Over is the time that the reports are about.
	Over time.Duration
}

// Recent returns what clients have reported in the last six intervals, for rates: of clusters that some client has reported
// then, ordered by name.
func (l *LoadReports) Recent() []RecentLoad {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	byName := make(map[string]RecentLoad)
	for key, s := range l.sums {
		load := byName[key.cluster]
		if s.addRecent(&load, now, l.opts.Interval) {
			load.Cluster = key.cluster
			byName[key.cluster] = load
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b RecentLoad) int { return cmp.Compare(a.Cluster, b.Cluster) })
}

// intervalLoad is what was reported in one interval. Intervals are counted from the Unix epoch.
type intervalLoad struct {
	interval                           int64
	issued, succeeded, failed, dropped uint64
}

// recent returns the load of the present interval.
func (s *loadSum) recent(now time.Time, interval time.Duration) *intervalLoad {
	n := now.UnixNano() / int64(interval)
	at := &s.intervals[n%recentIntervals]
	if at.interval != n {
		*at = intervalLoad{interval: n}
	}
	return at
}

// addRecent adds the last intervals to a load, and reports whether something was reported in them.
func (s *loadSum) addRecent(load *RecentLoad, now time.Time, interval time.Duration) (reported bool) {
	n := now.UnixNano() / int64(interval)
	for _, at := range s.intervals {
		if at.interval <= n-recentIntervals {
			continue
		}
		reported = true
		load.Issued += at.issued
		load.Succeeded += at.succeeded
		load.Failed += at.failed
		load.Dropped += at.dropped
	}
	// The first report is about the interval before it.
	begin := time.Unix(0, (n-recentIntervals+1)*int64(interval))
	if first := s.first.Add(-interval); first.After(begin) {
		begin = first
	}
	load.Over = max(load.Over, now.Sub(begin))
	return reported
}

// What a part of a sum takes in memory, about, without its name.
const (
	loadBytes       = 256
	clusterBytes    = 11 * loadBytes // a Snapshot has two more allocations for it
	inProgressBytes = 64
)

// forgetAfter is for how many intervals clients must not have reported a cluster before it makes room for others.
const forgetAfter = 3

type loadKey struct{ cluster, service string }

// loadSum is the load of a cluster. Guarded by LoadReports.mu.
type loadSum struct {
	ClusterLoad // without Localities
	localities  map[localityKey]*LocalityLoad
	// bytes is what it takes in memory, and reported when a client last reported it.
	bytes    int
	reported time.Time
	// first is when a client first reported it, and intervals has what was reported in each of the last ones.
	first     time.Time
	intervals [recentIntervals]intervalLoad
}

type localityKey struct{ region, zone, subZone string }

func (s *loadSum) copy() ClusterLoad {
	load := s.ClusterLoad
	load.Dropped = maps.Clone(load.Dropped)
	load.Localities = make([]LocalityLoad, 0, len(s.localities))
	for _, of := range s.localities {
		at := *of
		at.Metrics = maps.Clone(at.Metrics)
		load.Localities = append(load.Localities, at)
	}
	slices.SortFunc(load.Localities, func(a, b LocalityLoad) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.SubZone, b.SubZone))
	})
	return load
}

// take reports whether there is room for so many bytes more, and takes it. If there is none, clusters that nobody reports
// any more make room, once in an interval at most.
func (l *LoadReports) take(bytes int) bool {
	now := time.Now()
	if l.bytes+bytes > l.limit && now.Sub(l.forgot) >= l.opts.Interval {
		l.forgot = now
		for key, s := range l.sums {
			if now.Sub(s.reported) > forgetAfter*l.opts.Interval && !s.inProgress() {
				delete(l.sums, key)
				l.bytes -= s.bytes
			}
		}
	}
	if l.bytes+bytes > l.limit {
		return false
	}
	l.bytes += bytes
	return true
}

// inProgress reports whether a stream has RPCs in progress.
func (s *loadSum) inProgress() bool {
	for _, at := range s.localities {
		if at.InProgress > 0 {
			return true
		}
	}
	return false
}

// grow is take for a new part of a sum.
func (l *LoadReports) grow(s *loadSum, bytes int) bool {
	if !l.take(bytes) {
		return false
	}
	s.bytes += bytes
	l.news = true
	return true
}

// add adds a report of a client, as far as there is room.
func (st *loadStream) add(report []*endpointpb.ClusterStats) {
	l := st.reports
	l.mu.Lock()
	defer l.unlock()
	if st.ended {
		return
	}
	now := time.Now()
	for _, stats := range report {
		key := loadKey{stats.GetClusterName(), stats.GetClusterServiceName()}
		s := l.sums[key]
		if s == nil {
			s = &loadSum{
				ClusterLoad: ClusterLoad{Cluster: key.cluster, Service: key.service, Dropped: make(map[string]uint64)},
				localities:  make(map[localityKey]*LocalityLoad),
				first:       now,
			}
			if !l.grow(s, clusterBytes+len(key.cluster)+len(key.service)) {
				continue
			}
			l.sums[key] = s
		}
		s.reported = now
		l.count(&s.TotalDropped, stats.GetTotalDroppedRequests())
		recent := s.recent(now, l.opts.Interval)
		recent.dropped += stats.GetTotalDroppedRequests()
		for _, d := range stats.GetDroppedRequests() {
			n, known := s.Dropped[d.GetCategory()]
			if known || l.grow(s, loadBytes+len(d.GetCategory())) {
				l.count(&n, d.GetDroppedCount())
				s.Dropped[d.GetCategory()] = n
			}
		}
		for _, at := range stats.GetUpstreamLocalityStats() {
			if st.addLocality(s, at) {
				recent.issued += at.GetTotalIssuedRequests()
				recent.succeeded += at.GetTotalSuccessfulRequests()
				recent.failed += at.GetTotalErrorRequests()
			}
		}
	}
}

func (l *LoadReports) count(sum *uint64, n uint64) {
	*sum += n
	l.news = l.news || n > 0
}

// addLocality reports whether there was room.
func (st *loadStream) addLocality(s *loadSum, stats *endpointpb.UpstreamLocalityStats) bool {
	l := st.reports
	key := localityKey{stats.GetLocality().GetRegion(), stats.GetLocality().GetZone(), stats.GetLocality().GetSubZone()}
	at := s.localities[key]
	if at == nil {
		if !l.grow(s, loadBytes+len(key.region)+len(key.zone)+len(key.subZone)) {
			return false
		}
		at = &LocalityLoad{Region: key.region, Zone: key.zone, SubZone: key.subZone, Metrics: make(map[string]MetricLoad)}
		s.localities[key] = at
	}
	l.count(&at.Issued, stats.GetTotalIssuedRequests())
	l.count(&at.Succeeded, stats.GetTotalSuccessfulRequests())
	l.count(&at.Failed, stats.GetTotalErrorRequests())
	st.setInProgress(at, stats.GetTotalRequestsInProgress())
	l.measure(s, at, "cpu_utilization", stats.GetCpuUtilization())
	l.measure(s, at, "mem_utilization", stats.GetMemUtilization())
	l.measure(s, at, "application_utilization", stats.GetApplicationUtilization())
	for _, m := range stats.GetLoadMetricStats() {
		l.measure(s, at, m.GetMetricName(), m)
	}
	return true
}

// setInProgress replaces the number of RPCs that the client has in progress in a locality. One for which there is no room
// is not counted.
func (st *loadStream) setInProgress(at *LocalityLoad, n uint64) {
	l := st.reports
	last, known := st.inProgress[at]
	switch {
	case n == last:
		return
	case n == 0:
		delete(st.inProgress, at)
		l.bytes -= inProgressBytes
	case !known && !l.take(inProgressBytes):
		return
	default:
		st.inProgress[at] = n
	}
	at.InProgress += n - last
	l.news = true
}

// metricStats is common to both kinds of metrics in a report.
type metricStats interface {
	GetNumRequestsFinishedWithMetric() uint64
	GetTotalMetricValue() float64
}

// measure adds a metric, but for one that would make the sum of all reports infinite, or no number.
func (l *LoadReports) measure(s *loadSum, at *LocalityLoad, name string, stats metricStats) {
	m, known := at.Metrics[name]
	m.Sum += stats.GetTotalMetricValue()
	if stats.GetNumRequestsFinishedWithMetric() == 0 || math.IsNaN(m.Sum) || math.IsInf(m.Sum, 0) {
		return
	}
	if known || l.grow(s, loadBytes+len(name)) {
		l.count(&m.RPCs, stats.GetNumRequestsFinishedWithMetric())
		at.Metrics[name] = m
	}
}
