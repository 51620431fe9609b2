package outlier

import (
	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/grpcbridge"
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

// method is an algorithm, as metrics name it.
type method string

const (
	bySuccessRate       method = "success_rate"
	byFailurePercentage method = "failure_percentage"

	// These are not gRFC A91's. They are named after the fields that ask for them.

	byConsecutive5xx         method = "consecutive_5xx"
	byConsecutiveGateway     method = "consecutive_gateway_failure"
	byConsecutiveLocalOrigin method = "consecutive_local_origin_failure"
)

// reason is why an outlier is not ejected, as metrics name it.
type reason string

const (
	overflow    reason = "max_ejection_overflow"
	enforcement reason = "enforcement_percentage"
)

// metrics counts the outliers of one cluster (gRFC A91). A nil one counts nothing.
type metrics struct {
	recorder        estats.MetricsRecorder
	target, service string
}

// newMetrics returns nil if the metrics are not recorded.
func newMetrics(env *tree.Env) *metrics {
	if !env.Recorded {
		return nil
	}
	return &metrics{recorder: env.ClientConn.MetricsRecorder(), target: env.Options.Target.String(), service: env.Cluster}
}

func (m *metrics) ejected(by method) {
	if m != nil {
		enforced.Record(m.recorder, 1, m.target, string(by), m.service)
	}
}

func (m *metrics) spared(by method, why reason) {
	if m != nil {
		unenforced.Record(m.recorder, 1, m.target, string(by), string(why), m.service)
	}
}
