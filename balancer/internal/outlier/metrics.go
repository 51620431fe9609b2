package outlier

import (
	"slices"

	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// The metrics of gRFC A91.
var (
	enforced   = metric("ejections_enforced", "Outliers that were ejected.", labelTarget, labelMethod)
	unenforced = metric("ejections_unenforced", "Outliers that were detected but not ejected, because of max_ejection_percent or the enforcement percentage.",
		labelTarget, labelMethod, labelReason)
)

const (
	labelTarget = "grpc.target"
	labelMethod = "grpc.lb.outlier_detection.detection_method"
	labelReason = "grpc.lb.outlier_detection.unenforced_reason"
)

func metric(name, description string, labels ...string) *grpcbridge.Metric {
	return grpcbridge.NewMetric(estats.MetricDescriptor{
		Type: estats.MetricTypeIntCount, Name: "grpc.lb.outlier_detection." + name, Unit: "{ejection}", Description: description,
		Labels: labels, OptionalLabels: []string{"grpc.lb.backend_service"},
	})
}

// The algorithms, as metrics name them.
const (
	bySuccessRate       = "success_rate"
	byFailurePercentage = "failure_percentage"
)

// byRun has the names of the methods that eject endpoints for consecutive failures. gRFC A91 lacks these methods, so Envoy's fields
// give the names.
var byRun = [xdsresource.Runs]string{"consecutive_5xx", "consecutive_gateway_failure", "consecutive_local_origin_failure"}

// count counts an outlier, by its method and the further labels, if metrics are recorded.
func (d *Detector) count(m *grpcbridge.Metric, labels ...string) {
	if e := d.env; e.Recorded {
		labels = slices.Concat([]string{e.Options.Target.String()}, labels, []string{e.Cluster})
		m.Record(e.ClientConn.MetricsRecorder(), 1, labels...)
	}
}
