package outlier

import (
	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// The metrics and labels of gRFC A91.
const (
	metricEnforced   = "grpc.lb.outlier_detection.ejections_enforced"
	metricUnenforced = "grpc.lb.outlier_detection.ejections_unenforced"

	labelTarget  = "grpc.target"
	labelMethod  = "grpc.lb.outlier_detection.detection_method"
	labelReason  = "grpc.lb.outlier_detection.unenforced_reason"
	labelService = "grpc.lb.backend_service"
)

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

func init() {
	metric := func(name, description string, labels ...string) estats.MetricDescriptor {
		return estats.MetricDescriptor{
			Type: estats.MetricTypeIntCount, Name: name, Unit: "{ejection}", Description: description,
			Labels: labels, OptionalLabels: []string{labelService},
		}
	}
	grpcbridge.RegisterMetrics(
		metric(metricEnforced, "Outliers that were ejected.", labelTarget, labelMethod),
		metric(metricUnenforced, "Outliers that were detected but not ejected, because of max_ejection_percent or the enforcement percentage.",
			labelTarget, labelMethod, labelReason),
	)
}

// metrics counts the outliers of one cluster (gRFC A91). A nil one counts nothing.
type metrics struct {
	recorder             estats.MetricsRecorder
	target, service      string
	enforced, unenforced *grpcbridge.Counter
}

// newMetrics returns nil if the metrics are not recorded.
func newMetrics(env *tree.Env) *metrics {
	if !env.Recorded {
		return nil
	}
	return &metrics{
		recorder: env.ClientConn.MetricsRecorder(), target: env.Options.Target.String(), service: env.Cluster,
		enforced:   grpcbridge.FindCounter(metricEnforced, labelTarget, labelMethod, labelService),
		unenforced: grpcbridge.FindCounter(metricUnenforced, labelTarget, labelMethod, labelReason, labelService),
	}
}

func (m *metrics) ejected(by method) {
	if m != nil {
		m.enforced.Record(m.recorder, 1, m.target, string(by), m.service)
	}
}

func (m *metrics) spared(by method, why reason) {
	if m != nil {
		m.unenforced.Record(m.recorder, 1, m.target, string(by), string(why), m.service)
	}
}
