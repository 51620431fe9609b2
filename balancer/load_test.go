package balancer_test

import (
	"testing"

	grpcbalancer "google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// reported has the load of a cluster counted.
func reported(s *load.Store) func(*xdsresource.Cluster) {
	return func(c *xdsresource.Cluster) {
		c.Load = &xdsresource.LoadReporting{Loads: s, Metrics: &load.Metrics{CPU: true}}
	}
}

// Counting is part of each pick, and is done without a lock or an allocation.
func TestPickThatIsReportedAllocatesNothing(t *testing.T) {
	s := load.NewStore(nil)
	picker, ctx := readyPicker(t, 1, reported(s))
	info := grpcbalancer.PickInfo{Ctx: ctx}
	s.Take(nil)
	const n = 1000
	if allocations := testing.AllocsPerRun(n, func() {
		if err := pickAndEnd(picker, info); err != nil {
			t.Fatal(err)
		}
	}); allocations != 0 {
		t.Errorf("a pick makes %v allocations", allocations)
	}
	var total uint64
	for _, r := range s.Take(nil) {
		for _, l := range r.Localities {
			total += l.Succeeded
		}
	}
	if total != n+1 { // AllocsPerRun runs once before it counts
		t.Errorf("%d RPCs were counted, want %d", total, n+1)
	}
}

// BenchmarkPickWithLoadReports is BenchmarkPick with and without load reports.
func BenchmarkPickWithLoadReports(b *testing.B) {
	for _, tc := range []struct {
		name string
		edit func(*xdsresource.Cluster)
	}{
		{"lrs=false", func(*xdsresource.Cluster) {}},
		{"lrs=true", reported(load.NewStore(nil))},
	} {
		b.Run(tc.name, func(b *testing.B) {
			picker, ctx := readyPicker(b, 1, tc.edit)
			info := grpcbalancer.PickInfo{Ctx: ctx}
			b.Run("sequential", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := pickAndEnd(picker, info); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("parallel", func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := pickAndEnd(picker, info); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		})
	}
}
