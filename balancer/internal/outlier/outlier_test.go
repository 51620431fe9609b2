package outlier_test

import (
	"testing"

	estats "google.golang.org/grpc/experimental/stats"

	_ "github.com/dynxds/dynxds/balancer/internal/outlier"
)

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
