package outlier_test

import (
	"testing"
	"testing/synctest"
	"time"

	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// counted are the values of the two counters by their labels, without grpc.target and
// grpc.lb.backend_service, which are always the same.
type counted map[string]int64

const (
	enforcedBy = "grpc.lb.outlier_detection.ejections_enforced" +
		" grpc.target=xds:///service grpc.lb.outlier_detection.detection_method="
	unenforcedBy = "grpc.lb.outlier_detection.ejections_unenforced" +
		" grpc.target=xds:///service grpc.lb.outlier_detection.detection_method="
	because   = " grpc.lb.outlier_detection.unenforced_reason="
	ofCluster = " grpc.lb.backend_service=backend"
)

// gRFC A91, "Proposal", the tables of labels and metrics: which counter an outlier is counted by,
// and with which labels. An endpoint that is ejected already is not detected again (gRFC A50).
func TestMetricsOfDetections(t *testing.T) {
	t.Parallel()
	bothAlgorithms := func(c *xdsresource.OutlierDetection) {
		c.MaxEjectionPercent = 100
		c.FailurePercentage = failurePercentage().FailurePercentage
	}
	for _, tc := range []struct {
		name   string
		config *xdsresource.OutlierDetection
		edit   func(*xdsresource.OutlierDetection)
		calls  []calls
		want   counted
	}{
		{"no outlier", successRate(), nil, good(10), nil},
		{"success rate, enforced", successRate(), nil, append(good(9), calls{0, 100}),
			counted{enforcedBy + "success_rate" + ofCluster: 1}},
		{"failure percentage, enforced", failurePercentage(), nil, append(good(8), calls{0, 100}, calls{0, 100}),
			counted{enforcedBy + "failure_percentage" + ofCluster: 2}},
		{"success rate, by the enforcement percentage", successRate(),
			func(c *xdsresource.OutlierDetection) { c.SuccessRate.EnforcementPercentage = 0 }, append(good(9), calls{0, 100}),
			counted{unenforcedBy + "success_rate" + because + "enforcement_percentage" + ofCluster: 1}},
		{"failure percentage, by the enforcement percentage", failurePercentage(),
			func(c *xdsresource.OutlierDetection) { c.FailurePercentage.EnforcementPercentage = 0 }, append(good(9), calls{0, 100}),
			counted{unenforcedBy + "failure_percentage" + because + "enforcement_percentage" + ofCluster: 1}},
		{"success rate, too many ejected", successRate(),
			func(c *xdsresource.OutlierDetection) { c.MaxEjectionPercent, c.SuccessRate.StdevFactor = 10, 1000 },
			append(good(8), calls{0, 100}, calls{0, 100}), counted{
				enforcedBy + "success_rate" + ofCluster:                                       1,
				unenforcedBy + "success_rate" + because + "max_ejection_overflow" + ofCluster: 1,
			}},
		{"failure percentage, too many ejected", failurePercentage(), nil, append(good(2), calls{0, 100}, calls{0, 100}, calls{0, 100}, calls{0, 100}),
			counted{
				enforcedBy + "failure_percentage" + ofCluster:                                       3,
				unenforcedBy + "failure_percentage" + because + "max_ejection_overflow" + ofCluster: 1,
			}},
		{"too many ejected counts before the enforcement percentage", failurePercentage(),
			func(c *xdsresource.OutlierDetection) {
				c.MaxEjectionPercent, c.FailurePercentage.EnforcementPercentage = 0, 0
			}, append(good(9), calls{0, 100}),
			counted{unenforcedBy + "failure_percentage" + because + "max_ejection_overflow" + ofCluster: 1}},
		{"detected by both algorithms", successRate(), bothAlgorithms, append(good(9), calls{0, 100}),
			counted{enforcedBy + "success_rate" + ofCluster: 1}},
		{"detected by both algorithms, the second of which ejects", successRate(), func(c *xdsresource.OutlierDetection) {
			bothAlgorithms(c)
			c.SuccessRate.EnforcementPercentage = 0
		}, append(good(9), calls{0, 100}), counted{
			unenforcedBy + "success_rate" + because + "enforcement_percentage" + ofCluster: 1,
			enforcedBy + "failure_percentage" + ofCluster:                                  1,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			test(t, len(tc.calls), func(f *fixture) {
				if tc.edit != nil {
					tc.edit(tc.config)
				}
				f.update(tc.config)
				for i, c := range tc.calls {
					f.rpcs(i, c.succeeded, c.failed)
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				got := f.cc.Meter.Counts("grpc.lb.outlier_detection.")
				xdstest.Equal(t, "counted", tc.want, got)
			})
		})
	}
}

// gRFC A91: each detection counts, the end of an ejection does not.
func TestMetricsOfRepeatedEjections(t *testing.T) {
	test(t, 5, func(f *fixture) {
		c := failurePercentage()
		c.BaseEjectionTime, c.MaxEjectionTime = time.Nanosecond, time.Nanosecond
		f.update(c)
		for range 3 {
			for i := range f.conns {
				f.rpcs(i, 100*min(i, 1), 100*(1-min(i, 1)))
			}
			time.Sleep(10 * time.Second)
			f.expect("after an interval with failures", 0)
			time.Sleep(10 * time.Second)
			f.expect("after an interval without")
		}
		want := map[string]int64{enforcedBy + "failure_percentage" + ofCluster: 3}
		xdstest.Equal(f.t, "counted", want, f.cc.Meter.Counts("grpc.lb.outlier_detection."))
	})
}

// gRFC A91, "Metric Stability": off by default.
func TestMetricsAreOffByDefault(t *testing.T) {
	for name, unit := range map[string]string{
		"grpc.lb.outlier_detection.ejections_enforced": "{ejection}", "grpc.lb.outlier_detection.ejections_unenforced": "{ejection}",
	} {
		d := estats.DescriptorForMetric(name)
		if d == nil {
			t.Errorf("%s is not registered", name)
		} else if d.Default || d.Unit != unit || d.Type != estats.MetricTypeIntCount {
			t.Errorf("%s is registered as %+v", name, *d)
		}
	}
}
