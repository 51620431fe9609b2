package e2e_test

import (
	"testing"

	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/observe/metrics"
)

// gRPC ignores the names of metrics that it does not know.
func TestAllMetricsAreRegisteredAndOff(t *testing.T) {
	t.Parallel()
	names := metrics.All().Metrics()
	if len(names) != 28 {
		t.Errorf("%d metrics: %v", len(names), names)
	}
	for name := range names {
		if d := estats.DescriptorForMetric(name); d == nil || d.Default || d.Description == "" || d.Unit == "" {
			t.Errorf("%s is registered as %+v", name, d)
		}
	}
}
