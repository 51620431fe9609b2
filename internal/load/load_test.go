package load_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	orcapb "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/internal/load"
)

var (
	blue = load.Key{Cluster: "blue", Service: "blue-eds"}
	east = load.LocalityID{Region: "eu", Zone: "east"}
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

// in returns the counters of the cluster's only locality.
func in(c *load.Cluster) *load.Locality { return c.Localities([]load.LocalityID{east})[0] }

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

// A cluster that is not used any more, and has nothing to report, is forgotten.
func TestReleasedClusterIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, s *load.Store) {
		c := s.Use(blue, nil)
		l := in(c)
		rpcs(l, 1, succeeded)
		c.Release()
		for range 3 { // one more RPC may begin at first
			takeAfter(s, time.Second)
		}
		forgotten := weak.Make(l)
		runtime.GC()
		if forgotten.Value() != nil {
			t.Error("the cluster is still remembered")
		}
		runtime.KeepAlive(s)
	})
}

func TestWithoutReportsNothingIsCounted(t *testing.T) {
	t.Parallel()
	var c *load.Cluster
	l := c.Elsewhere()
	l.Start()
	l.End(succeeded)
	if in(c) != nil {
		t.Error("there are counters")
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
