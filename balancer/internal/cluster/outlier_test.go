package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// ejecting ejects endpoints for 30 s that fail more than half of at least volume RPCs in 10 s.
func ejecting(volume uint32) *xdsresource.OutlierDetection {
	return &xdsresource.OutlierDetection{
		Interval: 10 * time.Second, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 30 * time.Second, MaxEjectionPercent: 50,
		FailurePercentage: &xdsresource.FailurePercentageEjection{Threshold: 50, EnforcementPercentage: 100, MinimumHosts: 1, RequestVolume: volume},
	}
}

// gRFC A50 and A61 with every policy that balances: an ejected endpoint gets no
// RPC, keeps its connection, and is back at once when its time is over.
func TestEjectedEndpointGetsNoRPCs(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{
		"round_robin", "least_request_experimental", "weighted_round_robin", xdsresource.PolicyRandom, xdsresource.PolicyRingHash,
		xdsresource.PolicyMaglev, xdsresource.PolicySlowStart,
	} {
		t.Run(policy, subtest(func(t *testing.T, f *fixture) {
			c := by(policy, "", at("a", 0, "a:1", "b:1", "c:1"))
			c.Cluster.Outliers = ejecting(10)
			f.update(c)
			// counts makes RPCs, of which those to c fail.
			counts := func(n int) map[string]int {
				got := make(map[string]int)
				for i := range n {
					ctx := &decision.Decision{Context: context.Background(), Extra: &decision.Extra{RPC: spread(i)}}
					result, err := f.CC.State().Picker.Pick(balancer.PickInfo{Ctx: ctx})
					if err != nil {
						synctest.Wait() // a ring connects on demand
						continue
					}
					addr := lbtest.Picked(result).Addr
					got[addr]++
					info := balancer.DoneInfo{BytesReceived: true}
					if addr == "c:1" {
						info.Err = errors.New("failed")
					}
					result.Done(info)
				}
				return got
			}
			if got := counts(600); got["a:1"] == 0 || got["b:1"] == 0 || got["c:1"] < 10 {
				t.Fatalf("at first RPCs go to %v", got)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := counts(600); got["c:1"] != 0 || got["a:1"] == 0 || got["b:1"] == 0 {
				t.Errorf("with c ejected RPCs go to %v", got)
			}
			f.ExpectOpen("with c ejected", "a:1", "b:1", "c:1")
			time.Sleep(40 * time.Second)
			synctest.Wait()
			if got := counts(600); got["c:1"] == 0 {
				t.Errorf("with c back RPCs go to %v", got)
			}
			// Without outlier detection nothing stays ejected.
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := counts(100); got["c:1"] != 0 {
				t.Errorf("with c ejected again RPCs go to %v", got)
			}
			off := *c.Cluster
			off.Outliers = nil
			c.Cluster = &off
			f.update(c)
			if got := counts(600); got["c:1"] == 0 {
				t.Errorf("without outlier detection RPCs go to %v", got)
			}
		}))
	}
}

// Without a Policy nothing is ejected, although RPCs go on.
func TestNothingIsEjectedAfterTheEnd(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprint("closed ", closed), subtest(func(t *testing.T, f *fixture) {
			var meter *lbtest.Meter
			f.Loop.Do(func() { meter = f.Record() })
			c := by("round_robin", "", at("a", 0, "a:1", "b:1"))
			c.Cluster.Outliers = ejecting(2)
			f.update(c)
			var done []func(balancer.DoneInfo)
			for range 20 {
				result, _, err := f.pick()
				xdstest.NoError(t, err)
				done = append(done, result.Done)
			}
			if closed {
				f.Close()
			}
			for _, d := range done {
				d(balancer.DoneInfo{Err: errTest, BytesReceived: true})
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			ejections := meter.Counts("grpc.lb.outlier_detection.")
			if ejected := len(ejections) > 0; ejected == closed {
				t.Errorf("recorded are %v", ejections)
			}
		}))
	}
}

// gRFC A50: max_ejection_percent is a share of the endpoints that get RPCs, and only the endpoints of the subset do (gRFC A68).
func TestEjectionsInASubset(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		c := by("round_robin", "", at("a", 0, "a:1", "b:1", "c:1", "d:1", "e:1", "f:1"))
		c.Cluster.Subsets.OfPriority = 2
		c.Cluster.Outliers = ejecting(2)
		c.Cluster.Outliers.MaxEjectionPercent = 40 // one of two, two of five
		f.update(c)
		for range 20 {
			result, _, err := f.pick()
			xdstest.NoError(t, err)
			result.Done(balancer.DoneInfo{Err: errTest, BytesReceived: true})
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		got := slices.Collect(maps.Keys(f.Counts(20)))
		if len(got) != 1 || !slices.Contains(f.CC.Open(), got[0]) {
			t.Errorf("although all fail, RPCs go to %v, want one of %v", got, f.CC.Open())
		}
	})
}

// spread is a hasher that spreads RPCs over the ring.
type spread int

func (spread) Origin() (context.Context, string, string) { return context.Background(), "", "" }

func (s spread) Hash() (uint64, bool) {
	return uint64(s) * 0x9e3779b97f4a7c15, true
}
