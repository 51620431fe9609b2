package load_test

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	orcapb "github.com/cncf/xds/go/xds/data/orca/v3"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdstest"
)

var (
	blue  = load.Key{Cluster: "blue", Service: "blue-eds"}
	green = load.Key{Cluster: "green"}
	east  = load.LocalityID{Region: "eu", Zone: "east"}
	west  = load.LocalityID{Region: "eu", Zone: "west", SubZone: "rack"}
)

// The three ways in which an RPC that was picked for can end.
var (
	succeeded = balancer.DoneInfo{BytesSent: true, BytesReceived: true}
	failed    = balancer.DoneInfo{Err: errors.New("test"), BytesSent: true}
	void      = balancer.DoneInfo{}
)

// end is an end that brings metrics of the backend.
func end(report *orcapb.OrcaLoadReport) balancer.DoneInfo {
	return balancer.DoneInfo{BytesSent: true, ServerLoad: report}
}

// rpcs starts and ends RPCs.
func rpcs(l *load.Locality, n int, how balancer.DoneInfo) {
	for range n {
		l.Start()
		l.End(how)
	}
}

// want compares reports, in the order of clusters and zones.
func want(t *testing.T, when string, got []*load.Report, want ...*load.Report) {
	t.Helper()
	slices.SortFunc(got, func(a, b *load.Report) int { return cmp.Compare(a.Cluster, b.Cluster) })
	for _, r := range got {
		slices.SortFunc(r.Localities, func(a, b *load.LocalityReport) int { return cmp.Compare(a.ID.Zone, b.ID.Zone) })
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// report is one of a second.
func report(k load.Key, localities ...*load.LocalityReport) *load.Report {
	return &load.Report{Key: k, Interval: time.Second, Localities: localities}
}

func at(id load.LocalityID, n load.Counts) *load.LocalityReport {
	return &load.LocalityReport{ID: id, Counts: n}
}

// in returns the counters of the cluster's only locality, both those of its two.
func in(c *load.Cluster) *load.Locality { return c.Localities([]load.LocalityID{east})[0] }

func both(c *load.Cluster) (e, w *load.Locality) {
	all := c.Localities([]load.LocalityID{east, west})
	return all[0], all[1]
}

// bubble runs a test in a synctest bubble, where a report of a second is one.
func bubble(t *testing.T, f func(t *testing.T, s *load.Store)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(t, load.NewStore(nil)) })
}

// takeAfter takes a report of the given time.
func takeAfter(s *load.Store, d time.Duration) []*load.Report {
	time.Sleep(d) // in a bubble
	return s.Take(nil)
}

// load_report.proto, UpstreamLocalityStats: totals since the last report, by
// locality; those in progress are of the moment. What has nothing to report is left
// out.
func TestReportCoversTheTimeSinceTheLast(t *testing.T) {
	bubble(t, func(t *testing.T, s *load.Store) {
		e, w := both(s.Use(blue, nil))
		idle := in(s.Use(green, nil))
		want(t, "before the first RPC", takeAfter(s, time.Second))

		rpcs(e, 5, succeeded)
		rpcs(e, 2, failed)
		w.Start()
		w.Start()
		want(t, "the first report", takeAfter(s, time.Second), report(blue,
			at(east, load.Counts{Issued: 7, Succeeded: 5, Failed: 2}),
			at(west, load.Counts{Issued: 2, InProgress: 2})))

		w.End(succeeded)
		rpcs(idle, 1, succeeded)
		want(t, "the second report", takeAfter(s, time.Second),
			report(blue, at(west, load.Counts{Succeeded: 1, InProgress: 1})),
			report(green, at(east, load.Counts{Issued: 1, Succeeded: 1})))

		want(t, "RPCs in flight alone", takeAfter(s, time.Second), report(blue, at(west, load.Counts{InProgress: 1})))
		w.End(failed)
		want(t, "the end of the last RPC", takeAfter(s, time.Second), report(blue, at(west, load.Counts{Failed: 1})))
		want(t, "then", takeAfter(s, time.Second))
	})
}

// lrs.proto, LoadStatsResponse.clusters: clusters that the server does not ask for are not
// reported. Nothing of theirs is lost.
func TestUnwantedClustersAreReportedLater(t *testing.T) {
	bubble(t, func(t *testing.T, s *load.Store) {
		b, g := in(s.Use(blue, nil)), in(s.Use(green, nil))
		rpcs(b, 1, succeeded)
		rpcs(g, 1, succeeded)
		time.Sleep(time.Second)
		want(t, "one wanted", s.Take(func(name string) bool { return name == "green" }),
			report(green, at(east, load.Counts{Issued: 1, Succeeded: 1})))
		rpcs(b, 1, failed)
		late := report(blue, at(east, load.Counts{Issued: 2, Succeeded: 1, Failed: 1}))
		late.Interval = 2 * time.Second
		want(t, "the other one", takeAfter(s, time.Second), late)
	})
}

// load_report.proto, ClusterStats: drops by category, and those without one, of
// circuit breaking, in the total only.
func TestDrops(t *testing.T) {
	bubble(t, func(t *testing.T, s *load.Store) {
		c := s.Use(blue, nil)
		lb, throttle, breaker := c.Drops("lb"), c.Drops("throttle"), c.Drops("")
		for range 3 {
			lb.Count()
			breaker.Count()
		}
		c.Drops("lb").Count()
		throttle.Count()
		r := report(blue)
		r.TotalDropped, r.Dropped = 8, map[string]uint64{"lb": 4, "throttle": 1}
		want(t, "the first report", takeAfter(s, time.Second), r)
		breaker.Count()
		r = report(blue)
		r.TotalDropped = 1
		want(t, "the second", takeAfter(s, time.Second), r)
		want(t, "the third", takeAfter(s, time.Second))
	})
}

func TestCategoriesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *load.Store) {
		c := s.Use(blue, nil)
		const n = load.MaxCategories + 50
		for i := range n {
			c.Drops(string(rune('a' + i))).Count()
		}
		r := takeAfter(s, time.Second)[0]
		if len(r.Dropped) != load.MaxCategories || r.TotalDropped != n {
			t.Errorf("%d categories and %d drops, want %d and %d", len(r.Dropped), r.TotalDropped, load.MaxCategories, n)
		}
	})
}

// What could not be sent is in the next report, which covers the whole time.
func TestPutBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *load.Store) {
		c := s.Use(blue, &load.Metrics{CPU: true, AllNamed: true})
		e, w := both(c)
		turn := func() {
			rpcs(e, 3, succeeded)
			c.Drops("lb").Count()
			e.Start()
			e.End(end(&orcapb.OrcaLoadReport{CpuUtilization: 0.5, NamedMetrics: map[string]float64{"k": 2}}))
			w.Start()
		}
		turn()
		s.PutBack(takeAfter(s, time.Second))
		turn()
		s.PutBack(takeAfter(s, time.Second))
		w.End(failed)
		w.End(failed)
		r := &load.Report{
			Key: blue, Interval: 3 * time.Second, TotalDropped: 2, Dropped: map[string]uint64{"lb": 2},
			Localities: []*load.LocalityReport{
				{ID: east, Counts: load.Counts{Issued: 8, Succeeded: 8}, CPU: load.Metric{Count: 2, Sum: 1}, Named: map[string]load.Metric{"k": {Count: 2, Sum: 4}}},
				{ID: west, Counts: load.Counts{Issued: 2, Failed: 2}},
			},
		}
		want(t, "the report that was sent", takeAfter(s, time.Second), r)
		want(t, "then", takeAfter(s, time.Second))
	})
}

// RPCs in flight elsewhere are reported as they were set last, and their end once.
func TestElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, s *load.Store) {
		l := in(s.Use(blue, nil))
		for _, step := range []struct {
			inFlight uint64
			want     []*load.Report
		}{
			{0, nil},
			{3, []*load.Report{report(blue, at(east, load.Counts{InProgress: 3}))}},
			{3, []*load.Report{report(blue, at(east, load.Counts{InProgress: 3}))}},
			{0, []*load.Report{report(blue, at(east, load.Counts{}))}},
			{0, nil},
		} {
			l.SetElsewhere(step.inFlight)
			want(t, "RPCs elsewhere", takeAfter(s, time.Second), step.want...)
		}
	})
}

// If the connection had ended and gRPC picks again, the pick is no RPC.
func TestPicksWithoutRPC(t *testing.T) {
	bubble(t, func(t *testing.T, s *load.Store) {
		l := in(s.Use(blue, nil))
		l.Start()
		l.End(void)
		want(t, "with no other RPC", takeAfter(s, time.Second))
		l.Start()
		want(t, "in flight", takeAfter(s, time.Second), report(blue, at(east, load.Counts{Issued: 1, InProgress: 1})))
		l.End(void)
		want(t, "after the pick had come to nothing", takeAfter(s, time.Second))
		rpcs(l, 3, succeeded)
		want(t, "the next RPCs make up for it", takeAfter(s, time.Second), report(blue, at(east, load.Counts{Issued: 2, Succeeded: 3})))
	})
}

// The final numbers of an unused cluster are reported, also those of RPCs that end afterwards.
// Then it is removed.
func TestReleasedClusterIsReportedToItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *load.Store) {
		c := s.Use(blue, nil)
		l := in(c)
		l.Start()
		c.Release()
		if s.InUse() || !s.Busy() {
			t.Errorf("InUse() = %v, Busy() = %v; want false and true", s.InUse(), s.Busy())
		}
		want(t, "in flight", takeAfter(s, time.Second), report(blue, at(east, load.Counts{Issued: 1, InProgress: 1})))
		l.End(succeeded)
		if s.Busy() {
			t.Error("Busy() after the last RPC")
		}
		want(t, "ended", takeAfter(s, time.Second), report(blue, at(east, load.Counts{Succeeded: 1})))
		want(t, "then", takeAfter(s, time.Second))
		want(t, "and then", takeAfter(s, time.Second))
		forgotten := weak.Make(c)
		runtime.KeepAlive(l)
		runtime.GC()
		if forgotten.Value() != nil {
			t.Error("the cluster is still remembered")
		}
	})
}

// Two users of a key are one cluster of the report.
func TestUsersShareAReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var changes []bool
		var s *load.Store
		s = load.NewStore(func() { changes = append(changes, s.InUse()) })
		a, b := s.Use(blue, nil), s.Use(blue, nil)
		e, w := both(a)
		rpcs(e, 1, succeeded)
		w.Start()
		rpcs(in(b), 2, failed)
		want(t, "the report", takeAfter(s, time.Second), report(blue,
			at(east, load.Counts{Issued: 3, Succeeded: 1, Failed: 2}), at(west, load.Counts{Issued: 1, InProgress: 1})))
		other := s.Use(green, nil)
		a.Release()
		b.Release()
		other.Release()
		s.Use(blue, nil).Release()
		xdstest.Equal(t, "InUse at each change", []bool{true, false, true, false}, changes)
	})
}

func TestWithoutReportsNothingIsCounted(t *testing.T) {
	t.Parallel()
	var s *load.Store
	c := s.Use(blue, nil)
	l := c.Elsewhere()
	l.Start()
	l.End(succeeded)
	if len(c.Localities([]load.LocalityID{east})) > 0 {
		t.Error("there are counters without a Store")
	}
	c.Drops("lb").Count()
	c.Release()
}

// While reports cannot be sent, the number of unused clusters is bounded.
func TestUnusedClustersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *load.Store) {
		for i := range 3000 {
			c := s.Use(load.Key{Cluster: "c", Service: string(rune(i + 0x4e00))}, nil)
			c.Drops("").Count()
			c.Release()
		}
		s.PutBack(s.Take(nil))
		if n := len(takeAfter(s, time.Second)); n != 1000 {
			t.Errorf("%d clusters are remembered, want 1000", n)
		}
	})
}

// So is the number of unused localities of a cluster. Those with RPCs in flight stay.
func TestUnusedLocalitiesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *load.Store) {
		c := s.Use(blue, nil)
		one := func(zone string) *load.Locality { return c.Localities([]load.LocalityID{{Zone: zone}})[0] }
		for i := range 3000 {
			l := one(fmt.Sprint(i))
			l.Start()
			if i != 0 {
				l.End(end(nil))
			}
		}
		for i := range 1500 {
			one(fmt.Sprint("more", i))
		}
		one("0").Start() // It is there again.
		localities := takeAfter(s, time.Second)[0].Localities
		inProgress := 0
		for _, l := range localities {
			inProgress += int(l.InProgress)
		}
		if n := len(localities); n > 1001 || inProgress != 2 {
			t.Errorf("%d localities are remembered, with %d RPCs in flight; want at most 1001, and 2", n, inProgress)
		}
	})
}
