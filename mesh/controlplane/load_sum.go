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

// add adds the counts of another load.
func (r *RecentLoad) add(more RecentLoad) {
	r.Issued += more.Issued
	r.Succeeded += more.Succeeded
	r.Failed += more.Failed
	r.Dropped += more.Dropped
}

// Recent returns what clients have reported in the last six intervals, for rates: of clusters that some client has reported
// then, ordered by name.
func (l *LoadReports) Recent() []RecentLoad {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	oldest := l.interval(now) - recentIntervals + 1
	byName := make(map[string]RecentLoad)
	for key, s := range l.sums {
		// The first report is about the interval before it.
		over := min(now.Sub(time.Unix(0, oldest*int64(l.opts.Interval))), now.Sub(s.first)+l.opts.Interval)
		for _, at := range s.recent {
			if at.number < oldest {
				continue
			}
			load := byName[key.cluster]
			load.Cluster, load.Over = key.cluster, max(load.Over, over)
			load.add(at.RecentLoad)
			byName[key.cluster] = load
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b RecentLoad) int { return cmp.Compare(a.Cluster, b.Cluster) })
}

// interval returns the number of a time's interval. They are counted from the Unix epoch.
func (l *LoadReports) interval(at time.Time) int64 { return at.UnixNano() / int64(l.opts.Interval) }

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
	// first is when a client first reported it, and recent has what was reported in each of the last intervals.
	first  time.Time
	recent [recentIntervals]intervalLoad
}

// intervalLoad is what was reported in one interval.
type intervalLoad struct {
	number int64
	RecentLoad
}

// localityKey is a region, a zone and a sub-zone.
type localityKey [3]string

func (s *loadSum) copy() ClusterLoad {
	load := s.ClusterLoad
	load.Dropped = maps.Clone(load.Dropped)
	load.Localities = make([]LocalityLoad, 0, len(s.localities))
	for _, key := range slices.SortedFunc(maps.Keys(s.localities), func(a, b localityKey) int { return slices.Compare(a[:], b[:]) }) {
		at := *s.localities[key]
		at.Metrics = maps.Clone(at.Metrics)
		load.Localities = append(load.Localities, at)
	}
	return load
}

// take reports whether there is room for so many bytes more, and adds them to all and to those of a sum, which may be nil. If there is none, clusters that
// nobody reports any more make room, once in an interval at most.
func (l *LoadReports) take(of *int, bytes int) bool {
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
	if of != nil {
		*of += bytes
	}
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

// add adds a report of a client, as far as there is room.
func (st *loadStream) add(report []*endpointpb.ClusterStats) {
	l := st.reports
	l.mu.Lock()
	defer l.mu.Unlock()
	if st.ended || len(report) == 0 {
		return
	}
	l.wake()
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
			if !l.take(&s.bytes, clusterBytes+len(key.cluster)+len(key.service)) {
				continue
			}
			l.sums[key] = s
		}
		s.reported = now
		s.TotalDropped += stats.GetTotalDroppedRequests()
		recent := s.recentIn(l.interval(now))
		recent.Dropped += stats.GetTotalDroppedRequests()
		for _, d := range stats.GetDroppedRequests() {
			if _, known := s.Dropped[d.GetCategory()]; known || l.take(&s.bytes, loadBytes+len(d.GetCategory())) {
				s.Dropped[d.GetCategory()] += d.GetDroppedCount()
			}
		}
		running := map[*LocalityLoad]uint64{}
		for _, at := range stats.GetUpstreamLocalityStats() {
			if st.addLocality(s, at, running) {
				recent.add(RecentLoad{Issued: at.GetTotalIssuedRequests(), Succeeded: at.GetTotalSuccessfulRequests(), Failed: at.GetTotalErrorRequests()})
			}
		}
	}
}

// recentIn returns the load of the present interval.
func (s *loadSum) recentIn(number int64) *intervalLoad {
	at := &s.recent[number%recentIntervals]
	if at.number != number {
		*at = intervalLoad{number: number}
	}
	return at
}

// addLocality reports whether there was room. running has the RPCs in progress of the report, which has a locality once for each of its
// priorities.
func (st *loadStream) addLocality(s *loadSum, stats *endpointpb.UpstreamLocalityStats, running map[*LocalityLoad]uint64) bool {
	l := st.reports
	key := localityKey{stats.GetLocality().GetRegion(), stats.GetLocality().GetZone(), stats.GetLocality().GetSubZone()}
	at := s.localities[key]
	if at == nil {
		if !l.take(&s.bytes, loadBytes+len(key[0])+len(key[1])+len(key[2])) {
			return false
		}
		at = &LocalityLoad{Region: key[0], Zone: key[1], SubZone: key[2], Metrics: make(map[string]MetricLoad)}
		s.localities[key] = at
	}
	at.Issued += stats.GetTotalIssuedRequests()
	at.Succeeded += stats.GetTotalSuccessfulRequests()
	at.Failed += stats.GetTotalErrorRequests()
	running[at] += stats.GetTotalRequestsInProgress()
	st.setInProgress(at, running[at])
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
	last, known := st.inProgress[at]
	switch {
	case known && n == 0:
		delete(st.inProgress, at)
		st.reports.bytes -= inProgressBytes
	case n > 0 && (known || st.reports.take(nil, inProgressBytes)):
		st.inProgress[at] = n
	default:
		return
	}
	at.InProgress += n - last
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
	if known || l.take(&s.bytes, loadBytes+len(name)) {
		m.RPCs += stats.GetNumRequestsFinishedWithMetric()
		at.Metrics[name] = m
	}
}
