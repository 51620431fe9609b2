// Package rpcmetrics records metrics of the RPCs of a channel: by route, cluster and priority of
// the endpoint, by the reason of picks without an endpoint, the age of the configuration, and how long the process's certificates are
// valid. How many are in flight is read from package outcomes.
//
// It is on for channels with a stats plugin that takes metrics, in programs that link the module's
// package metrics, which registers the Descriptors with gRPC: plugins do not report which metrics
// they are going to record. The channel's Selectors then begin an rpctrace.Observer for each RPC, which is told where the RPC goes and
// how it ends; nothing else on the way of an RPC depends on it. Plugins do the aggregation.
package rpcmetrics

import (
	"slices"
	"sync/atomic"
	"time"

	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// The labels. Those of gRPC mean the same as on its own metrics (gRFC A66, A89).
const (
	labelTarget   = "grpc.target"
	labelFile     = "dynxds.certificate"
	labelStatus   = "grpc.status"
	labelCluster  = "grpc.lb.backend_service"
	labelRoute    = "dynxds.route"
	labelPriority = "dynxds.priority"
	labelReason   = "dynxds.reason"
)

const (
	metricCalls    = "dynxds.client.calls"
	metricDuration = "dynxds.client.call.duration"
	metricRetries  = "dynxds.client.call.retries"
	metricFailures = "dynxds.client.pick.failures"
	metricInFlight = "dynxds.client.in_flight"
	metricAge      = "dynxds.client.config.age"
	metricLeft     = "dynxds.client.certificate.left"
	metricLifetime = "dynxds.client.certificate.lifetime"
)

// Descriptors returns the metrics, for gRPC's registry. All are off unless a plugin enables them.
func Descriptors() []estats.MetricDescriptor {
	byRoute := []string{labelTarget, labelRoute, labelCluster, labelPriority}
	return []estats.MetricDescriptor{
		{Name: metricCalls, Type: estats.MetricTypeIntCount, Unit: "{call}", Labels: append(slices.Clone(byRoute), labelStatus),
			Description: "RPCs that have ended, by route, cluster, priority of the last endpoint and status."},
		{Name: metricDuration, Type: estats.MetricTypeFloatHisto, Unit: "s", Labels: byRoute, Bounds: grpcbridge.LatencyBounds(),
			Description: "Time from an RPC's routing to its end, with its retries."},
		{Name: metricRetries, Type: estats.MetricTypeIntCount, Unit: "{retry}", Labels: byRoute,
			Description: "Retries, by what the attempt before each went to."},
		{Name: metricFailures, Type: estats.MetricTypeIntCount, Unit: "{pick}", Labels: []string{labelTarget, labelCluster, labelReason},
			Description: "Picks that found no endpoint for an RPC, by reason. Picks that wait are not counted."},
		{Name: metricInFlight, Type: estats.MetricTypeIntAsyncGauge, Unit: "{call}", Labels: []string{labelTarget, labelRoute, labelCluster},
			Description: "RPCs that have been routed and have not ended, by route and the route's cluster."},
		{Name: metricAge, Type: estats.MetricTypeIntAsyncGauge, Unit: "s", Labels: []string{labelTarget},
			Description: "Time since the channel began to use its configuration: routes, clusters and endpoints."},
		{Name: metricLeft, Type: estats.MetricTypeIntAsyncGauge, Unit: "s", Labels: []string{labelFile},
			Description: "How long a certificate that the process presents is still valid; negative after its end."},
		{Name: metricLifetime, Type: estats.MetricTypeIntAsyncGauge, Unit: "s", Labels: []string{labelFile},
			Description: "How long a certificate that the process presents is valid in all."},
	}
}

// Recorder records the metrics of one channel, between idle periods. A nil Recorder records
// nothing. It is safe for concurrent use.
type Recorder struct {
	metrics map[string]*estats.MetricDescriptor
	target  string
	to      estats.MetricsRecorder
	// unrouted are the labels of RPCs without a route, others those of RPCs for whose own there
	// is no room (labelSets).
	unrouted, others labels
	// since is when the configuration came into use; nil: there is none.
	since      atomic.Pointer[time.Time]
	unregister func() // the gauges
}

// New returns the Recorder of a channel with the given target, or nil if nothing is to be
// recorded. It has to be closed.
func New(target string, to estats.MetricsRecorder) *Recorder {
	if !grpcbridge.Records(to) {
		return nil
	}
	metrics := grpcbridge.FindMetrics(Descriptors())
	if len(metrics) < len(Descriptors()) {
		return nil
	}
	m := &Recorder{metrics: metrics, target: target, to: to, unrouted: labels{target}, others: labels{target, other, other, other}}
	m.unregister = to.RegisterAsyncReporter(estats.AsyncMetricReporterFunc(m.report),
		m.gauge(metricAge), m.gauge(metricInFlight), m.gauge(metricLeft), m.gauge(metricLifetime))
	return m
}

func (m *Recorder) count(name string, labels ...string) {
	(*estats.Int64CountHandle)(m.metrics[name]).Record(m.to, 1, labels...)
}

func (m *Recorder) gauge(name string) *estats.Int64AsyncGaugeHandle {
	return (*estats.Int64AsyncGaugeHandle)(m.metrics[name])
}
