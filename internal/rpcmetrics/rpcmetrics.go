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

// handles are what metrics are recorded with.
type handles struct {
	calls, retries, failures *estats.Int64CountHandle
	duration                 *estats.Float64HistoHandle
	inFlight, age            *estats.Int64AsyncGaugeHandle
	left, lifetime           *estats.Int64AsyncGaugeHandle
}

// registered looks the metrics up in gRPC's registry. It reports false unless all are there. It
// must not be called before the program's init functions have run.
func registered() (handles, bool) {
	found := make(map[string]*estats.MetricDescriptor)
	for _, want := range Descriptors() {
		if found[want.Name] = grpcbridge.FindMetric(want); found[want.Name] == nil {
			return handles{}, false
		}
	}
	return handles{
		calls:    (*estats.Int64CountHandle)(found[metricCalls]),
		retries:  (*estats.Int64CountHandle)(found[metricRetries]),
		failures: (*estats.Int64CountHandle)(found[metricFailures]),
		duration: (*estats.Float64HistoHandle)(found[metricDuration]),
		inFlight: (*estats.Int64AsyncGaugeHandle)(found[metricInFlight]),
		age:      (*estats.Int64AsyncGaugeHandle)(found[metricAge]),
		left:     (*estats.Int64AsyncGaugeHandle)(found[metricLeft]),
		lifetime: (*estats.Int64AsyncGaugeHandle)(found[metricLifetime]),
	}, true
}

// Recorder records the metrics of one channel, between idle periods. A nil Recorder records
// nothing. It is safe for concurrent use.
type Recorder struct {
	handles
	target string
	to     estats.MetricsRecorder
	// unrouted are the labels of RPCs without a route, others those of RPCs for whose own there
	// is no room (labelSets).
	unrouted, others *labelSet
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
	h, ok := registered()
	if !ok {
		return nil
	}
	m := &Recorder{
		handles: h, target: target, to: to,
		unrouted: newLabelSet(labelKey{target: target}),
		others:   newLabelSet(labelKey{target, other, other, other}),
	}
	reporters.Lock()
	reporters.byTarget[target] = append(reporters.byTarget[target], m)
	reporters.Unlock()
	m.unregister = to.RegisterAsyncReporter(estats.AsyncMetricReporterFunc(m.report), h.age, h.inFlight, h.left, h.lifetime)
	return m
}
