package xdsresource

import (
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func withOutliers(o *clusterpb.OutlierDetection) *clusterpb.Cluster {
	return edsCluster(func(c *clusterpb.Cluster) { c.OutlierDetection = o })
}

// gRFC A50, "xDS Integration", and the defaults of "LB Policy Config".
func TestOutlierDetection(t *testing.T) {
	t.Parallel()
	n := wrapperspb.UInt32
	defaults := func() *OutlierDetection {
		return &OutlierDetection{
			Interval: 10 * time.Second, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 300 * time.Second, MaxEjectionPercent: 10,
			SuccessRate: &SuccessRateEjection{StdevFactor: 1900, EnforcementPercentage: 100, MinimumHosts: 5, RequestVolume: 100},
		}
	}
	both := defaults()
	both.FailurePercentage = &FailurePercentageEjection{Threshold: 85, EnforcementPercentage: 7, MinimumHosts: 5, RequestVolume: 50}
	long := defaults()
	long.BaseEjectionTime, long.MaxEjectionTime = 400*time.Second, 400*time.Second
	checkEach(t, "Outliers", func(t *testing.T, pb *clusterpb.OutlierDetection) *OutlierDetection {
		return mustDecode[Cluster](t, ClusterType, withOutliers(pb)).Outliers
	}, rows[*clusterpb.OutlierDetection, *OutlierDetection]{
		{"not set", nil, nil},
		{"empty: success rate with defaults", &clusterpb.OutlierDetection{}, defaults()},
		{"both algorithms", &clusterpb.OutlierDetection{EnforcingFailurePercentage: n(7)}, both},
		{"neither algorithm", &clusterpb.OutlierDetection{EnforcingSuccessRate: n(0)}, nil},
		{"a base time above the greatest", &clusterpb.OutlierDetection{BaseEjectionTime: durationpb.New(400 * time.Second)}, long},
		{"everything", &clusterpb.OutlierDetection{
			Interval: durationpb.New(time.Second), BaseEjectionTime: durationpb.New(2 * time.Second), MaxEjectionTime: durationpb.New(3 * time.Second),
			MaxEjectionPercent: n(4), SuccessRateStdevFactor: n(5), EnforcingSuccessRate: n(6), SuccessRateMinimumHosts: n(7), SuccessRateRequestVolume: n(8),
			FailurePercentageThreshold: n(9), EnforcingFailurePercentage: n(10), FailurePercentageMinimumHosts: n(11), FailurePercentageRequestVolume: n(12),
		}, &OutlierDetection{
			Interval: time.Second, BaseEjectionTime: 2 * time.Second, MaxEjectionTime: 3 * time.Second, MaxEjectionPercent: 4,
			SuccessRate:       &SuccessRateEjection{StdevFactor: 5, EnforcementPercentage: 6, MinimumHosts: 7, RequestVolume: 8},
			FailurePercentage: &FailurePercentageEjection{Threshold: 9, EnforcementPercentage: 10, MinimumHosts: 11, RequestVolume: 12},
		}},
	})
	const at = "outlier_detection."
	checkFaults(t, ClusterType, withOutliers(&clusterpb.OutlierDetection{
		Interval: durationpb.New(-1), BaseEjectionTime: durationpb.New(-1), MaxEjectionTime: durationpb.New(-1), MaxEjectionPercent: n(101),
		EnforcingSuccessRate: n(101), FailurePercentageThreshold: n(101), EnforcingFailurePercentage: n(101),
	}), []fault{
		{at + "interval", "is negative: -1ns"},
		{at + "base_ejection_time", "is negative: -1ns"},
		{at + "max_ejection_percent", "must be at most 100, is 101"},
		{at + "max_ejection_time", "is negative: -1ns"},
		{at + "enforcing_success_rate", "must be at most 100, is 101"},
		{at + "failure_percentage_threshold", "must be at most 100, is 101"},
		{at + "enforcing_failure_percentage", "must be at most 100, is 101"},
	})
}
