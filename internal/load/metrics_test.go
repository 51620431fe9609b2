package load_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	orcapb "github.com/cncf/xds/go/xds/data/orca/v3"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// A single backend must not make the sums of a locality, or of a management server, meaningless.
func TestValuesThatAreNoFiniteNumberAreNotCounted(t *testing.T) {
	bubble(t, func(t *testing.T, s *load.Store) {
		l := in(s.Use(blue, &load.Metrics{load.CPU: true, "named_metrics.*": true}))
		for _, v := range []float64{1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.MaxFloat64, -math.MaxFloat64, 2} {
			l.Start()
			l.End(end(&orcapb.OrcaLoadReport{CpuUtilization: v, NamedMetrics: map[string]float64{"key": v}}))
		}
		got := takeAfter(s, time.Second)[0].Localities[0]
		want := load.Metric{Count: 4, Sum: 2} // 1 is lost beside the largest number, which is taken back
		xdstest.Equal(t, "cpu_utilization", want, got.CPU)
		xdstest.Equal(t, "the named metric", want, got.Named["key"])
	})
}

// The names of metrics that a backend may invent are bounded.
func TestNamedMetricsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *load.Store) {
		l := in(s.Use(blue, &load.Metrics{"named_metrics.*": true}))
		invent := func() {
			for i := range load.MaxNamed + 10 {
				l.Start()
				l.End(end(&orcapb.OrcaLoadReport{NamedMetrics: map[string]float64{fmt.Sprint(i): 1}}))
			}
		}
		invent()
		s.PutBack(takeAfter(s, time.Second))
		invent()
		r := takeAfter(s, time.Second)[0].Localities[0]
		if len(r.Named) != load.MaxNamed || r.OmittedMetrics != 20 {
			t.Errorf("%d names and %d values omitted, want %d and 20", len(r.Named), r.OmittedMetrics, load.MaxNamed)
		}
	})
}

// So is the length of such a name.
func TestNamesOfMetricsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *load.Store) {
		l := in(s.Use(blue, &load.Metrics{"named_metrics.*": true}))
		longest := strings.Repeat("x", load.MaxName)
		l.Start()
		l.End(end(&orcapb.OrcaLoadReport{NamedMetrics: map[string]float64{longest: 1, longest + "x": 1}}))
		r := takeAfter(s, time.Second)[0].Localities[0]
		if _, ok := r.Named[longest]; !ok || len(r.Named) != 1 || r.OmittedMetrics != 1 {
			t.Errorf("%d names and %d values omitted, want the shorter name alone", len(r.Named), r.OmittedMetrics)
		}
	})
}

// With concurrent use, every RPC is in exactly one report, and every metric in one together
// with its count.
func TestNothingIsLostOrCountedTwiceUnderConcurrency(t *testing.T) {
	t.Parallel()
	const workers, each = 8, 4000
	s := load.NewStore(nil)
	c := s.Use(blue, &load.Metrics{load.CPU: true, "named_metrics.*": true})
	l := in(c)
	metrics := end(&orcapb.OrcaLoadReport{CpuUtilization: 0.5, NamedMetrics: map[string]float64{"k": 3}})
	var working sync.WaitGroup
	for w := range workers {
		working.Go(func() {
			for i := range each {
				l.Start()
				switch (i + w) % 3 {
				case 0:
					l.End(metrics)
				case 1:
					l.End(failed)
				default:
					l.End(void)
				}
				c.Drops("lb").Count()
			}
		})
	}
	var total load.LocalityReport
	var dropped uint64
	collect := func(turn int) {
		reports := s.Take(nil)
		if turn%5 == 4 {
			s.PutBack(reports)
			return
		}
		for _, r := range reports {
			dropped += r.Dropped["lb"]
			for _, lr := range r.Localities {
				if k := lr.Named["k"]; lr.CPU.Sum != 0.5*float64(lr.CPU.Count) || k.Sum != 3*float64(k.Count) || k.Count != lr.CPU.Count {
					t.Errorf("sums and counts do not go together: CPU %v, named %v", lr.CPU, k)
				}
				if lr.InProgress > workers {
					t.Errorf("%d RPCs in flight, of %d workers", lr.InProgress, workers)
				}
				total.Issued += lr.Issued
				total.Succeeded += lr.Succeeded
				total.Failed += lr.Failed
				total.CPU.Count += lr.CPU.Count
			}
		}
	}
	done := make(chan struct{})
	go func() { working.Wait(); close(done) }()
	for turn := 0; ; turn++ {
		select {
		case <-done:
			collect(0)
			wantDropped := uint64(workers * each)
			if total.Issued != total.Succeeded+total.Failed || total.CPU.Count != total.Succeeded || dropped != wantDropped {
				t.Errorf("issued %d, succeeded %d, failed %d, with metrics %d, dropped %d of %d",
					total.Issued, total.Succeeded, total.Failed, total.CPU.Count, dropped, wantDropped)
			}
			if third := uint64(workers * each / 3); total.Succeeded < third-workers || total.Succeeded > third+workers {
				t.Errorf("%d RPCs succeeded, want a third of %d", total.Succeeded, workers*each)
			}
			return
		default:
			collect(turn)
		}
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	const metric = "a metric with a long name"
	for _, selected := range []string{"*", metric} {
		s := load.NewStore(nil)
		c := s.Use(blue, &load.Metrics{load.CPU: true, load.NamedMetrics + selected: true})
		l, d := in(c), c.Drops("lb")
		info := end(&orcapb.OrcaLoadReport{CpuUtilization: 0.5, NamedMetrics: map[string]float64{metric: 3}})
		if n := testing.AllocsPerRun(1000, func() {
			l.Start()
			l.End(info)
			d.Count()
		}); n != 0 {
			t.Errorf("an RPC makes %v allocations while %q is selected", n, selected)
		}
	}
}

func BenchmarkCount(b *testing.B) {
	for _, tc := range []struct {
		name  string
		which *load.Metrics
	}{{"plain", nil}, {"metrics", &load.Metrics{load.CPU: true, "named_metrics.*": true}}} {
		b.Run(tc.name, func(b *testing.B) {
			l := in(load.NewStore(nil).Use(blue, tc.which))
			info := end(&orcapb.OrcaLoadReport{CpuUtilization: 0.5, NamedMetrics: map[string]float64{"k": 3}})
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l.Start()
					l.End(info)
				}
			})
		})
	}
}
