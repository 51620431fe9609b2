package cluster_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"

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
			result.Done(balancer.DoneInfo{Err: errors.New("failed"), BytesReceived: true})
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		got := slices.Collect(maps.Keys(f.Counts(20)))
		if len(got) != 1 || !slices.Contains(f.CC.Open(), got[0]) {
			t.Errorf("although all fail, RPCs go to %v, want one of %v", got, f.CC.Open())
		}
	})
}
