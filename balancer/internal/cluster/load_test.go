package cluster_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

var errTest = errors.New("test")

// counted is a cluster whose load is counted by s.
func counted(t *testing.T, s *load.Store, edit func(*cluster.Config)) cluster.Config {
	c := limited(t.Name(), 2)
	c.Cluster.Load = &xdsresource.LoadReporting{Loads: s, Service: "svc"}
	if edit != nil {
		edit(&c)
	}
	return c
}

// counts is what a report of the fixture's one locality says.
func counts(r *load.Report) load.Counts {
	if r == nil || len(r.Localities) == 0 {
		return load.Counts{}
	}
	return r.Localities[0].Counts
}

func firstReport(s *load.Store) *load.Report {
	for _, r := range s.Take(nil) {
		return r
	}
	return nil
}

// gRFC A27, A32: an RPC is issued when an endpoint was picked for it. One that the
// limit keeps out is a drop without a category, one that cannot be picked for is
// nothing.
func TestPicksAreCountedForReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f := load.NewStore(nil), newFixture(t)
		f.Network.Set("a:1", lbtest.Silent)
		f.update(counted(t, s, nil))
		f.pick()
		if r := firstReport(s); r != nil {
			t.Errorf("an RPC that waits was counted: %+v", r)
		}
		f.Network.Set("a:1", lbtest.Up)
		synctest.Wait()
		first, _, _ := f.pick()
		second, _, _ := f.pick()
		f.pick()
		r := firstReport(s)
		xdstest.Equal(t, "two RPCs in flight", load.Counts{Issued: 2, InProgress: 2}, counts(r))
		if r.Key != (load.Key{Cluster: "backend", Service: "svc"}) || r.Localities[0].ID.Zone != "a" || r.TotalDropped != 1 || len(r.Dropped) != 0 {
			t.Errorf("the report is %+v", r)
		}
		first.Done(balancer.DoneInfo{BytesSent: true})
		second.Done(balancer.DoneInfo{Err: errTest, BytesSent: true})
		xdstest.Equal(t, "after their ends", load.Counts{Succeeded: 1, Failed: 1}, counts(firstReport(s)))
	})
}

// Reports may start, change and stop while RPCs are in flight. Each RPC ends where it started.
func TestReportsChangeUnderRPCs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, two, f := load.NewStore(nil), load.NewStore(nil), newFixture(t)
		off := func(c *cluster.Config) { c.Cluster.Load = nil }
		var done []func(balancer.DoneInfo)
		for _, step := range []struct {
			name     string
			config   cluster.Config
			one, two load.Counts
			used     [2]bool
		}{
			{"no reports", counted(t, one, off), load.Counts{}, load.Counts{}, [2]bool{}},
			{"to one server", counted(t, one, nil), load.Counts{Issued: 1, InProgress: 1}, load.Counts{}, [2]bool{true, false}},
			{"with metrics", counted(t, one, func(c *cluster.Config) { c.Cluster.Load.Metrics = &load.Metrics{CPU: true} }),
				load.Counts{Issued: 1, InProgress: 2}, load.Counts{}, [2]bool{true, false}},
			{"to another server", counted(t, two, nil), load.Counts{InProgress: 2}, load.Counts{Issued: 1, InProgress: 1}, [2]bool{false, true}},
			{"no reports any more", counted(t, two, off), load.Counts{InProgress: 2}, load.Counts{InProgress: 1}, [2]bool{}},
		} {
			step.config.Cluster.MaxRequests = 10
			f.update(step.config)
			result, _, err := f.pick()
			if err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			done = append(done, result.Done)
			xdstest.Equal(t, step.name+": counts of both servers",
				[]load.Counts{step.one, step.two}, []load.Counts{counts(firstReport(one)), counts(firstReport(two))})
			if used := [2]bool{one.InUse(), two.InUse()}; used != step.used {
				t.Errorf("%s: in use %v, want %v", step.name, used, step.used)
			}
		}
		for _, d := range done {
			d(balancer.DoneInfo{BytesSent: true})
		}
		want := []load.Counts{{Succeeded: 2}, {Succeeded: 1}}
		xdstest.Equal(t, "at the end", want, []load.Counts{counts(firstReport(one)), counts(firstReport(two))})
		for i, s := range []*load.Store{one, two} {
			if got := s.Take(nil); s.Busy() || len(got) != 0 {
				t.Errorf("server %d: later reports are %v", i, got)
			}
		}
	})
}

// Drops are counted by their category.
func TestDropsAreCountedForReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f := load.NewStore(nil), newFixture(t)
		f.update(counted(t, s, func(c *cluster.Config) {
			c.Endpoints.Drops = []xdsresource.Drop{{Category: "lb", PerMillion: xdsresource.Million}}
		}))
		for range 5 {
			f.pick()
		}
		r := firstReport(s)
		if r.TotalDropped != 5 || r.Dropped["lb"] != 5 || len(r.Localities) > 0 {
			t.Errorf("the report is %+v", r)
		}
	})
}

// A cluster that is closed, or has no resources any more, is no longer in use.
func TestClosedClusterIsNotReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f := load.NewStore(nil), newFixture(t)
		f.update(counted(t, s, nil))
		f.update(cluster.Config{Err: errTest})
		if s.InUse() {
			t.Error("a cluster that cannot be used is reported")
		}
		f.update(counted(t, s, nil))
		f.Close()
		if s.InUse() {
			t.Error("a cluster that is closed is reported")
		}
	})
}
