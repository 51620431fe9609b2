package router

import (
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// The metrics of gRFC A96 that can be known above gRPC, which does not report its transparent
// retries.
const (
	metricRetries    = "grpc.client.call.retries"
	metricHedges     = "grpc.client.call.hedges"
	metricRetryDelay = "grpc.client.call.retry_delay"
)

var retryLabels = []string{"grpc.method", "grpc.target"}

func init() {
	grpcbridge.RegisterMetrics(
		estats.MetricDescriptor{
			Type: estats.MetricTypeIntHisto, Name: metricRetries, Unit: "{retry}", Labels: retryLabels,
			Description: "Number of retries during the client call. If there were none, nothing is recorded.",
			Bounds:      []float64{1, 2, 3, 4, 5},
		},
		estats.MetricDescriptor{
			Type: estats.MetricTypeIntHisto, Name: metricHedges, Unit: "{hedge}", Labels: retryLabels,
			Description: "Number of hedges during the client call. If there were none, nothing is recorded.",
			Bounds:      []float64{1, 2, 3, 4, 5},
		},
		estats.MetricDescriptor{
			Type: estats.MetricTypeFloatHisto, Name: metricRetryDelay, Unit: "s", Labels: retryLabels,
			Description: "Total time without an attempt during the client call, if it was retried.",
			Bounds: []float64{
				0, 0.00001, 0.00005, 0.0001, 0.0003, 0.0006, 0.0008, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008,
				0.01, 0.013, 0.016, 0.02, 0.025, 0.03, 0.04, 0.05, 0.065, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.4,
				0.5, 0.65, 0.8, 1, 2, 5, 10, 20, 50, 100,
			},
		},
	)
}

// retryMetrics are found by their names when they are first recorded, since a future gRPC may
// register them itself.
var retryMetrics = sync.OnceValue(func() (m struct {
	retries, hedges *estats.Int64HistoHandle
	delay           *estats.Float64HistoHandle
}) {
	m.retries = (*estats.Int64HistoHandle)(retryMetric(metricRetries, estats.MetricTypeIntHisto))
	m.hedges = (*estats.Int64HistoHandle)(retryMetric(metricHedges, estats.MetricTypeIntHisto))
	m.delay = (*estats.Float64HistoHandle)(retryMetric(metricRetryDelay, estats.MetricTypeFloatHisto))
	return m
})

// retryMetric returns nil if the metric has another type or other labels than here.
func retryMetric(name string, kind estats.MetricType) *estats.MetricDescriptor {
	d := estats.DescriptorForMetric(name)
	if d == nil || d.Type != kind || !slices.Equal(d.Labels, retryLabels) || len(d.OptionalLabels) > 0 {
		return nil
	}
	return d
}

// recordRetries counts the retries or hedges of an RPC that is decided, in all metrics that have them. An attempt
// that the picker has refused was not sent.
func (p *replay) recordRetries() {
	sent := 0
	for a := p.latest; a.number > 0; a = a.earlier {
		if a != p.refused {
			sent++
			a.count()
		}
	}
	if sent == 0 {
		return
	}
	c, hedges := p.request.call, p.hedges
	c.counted.Resent(sent, hedges)
	recorder := c.routes.Channel.Metrics
	if recorder == nil {
		return
	}
	// As in the other metrics of RPCs, only methods of generated code are named (gRFC A66).
	method := "other"
	if slices.ContainsFunc(c.rpc.Options, isStaticMethod) {
		method = strings.TrimPrefix(c.method(), "/")
	}
	metrics := retryMetrics()
	count := metrics.retries
	if hedges {
		count = metrics.hedges
	}
	if count != nil {
		count.Record(recorder, int64(sent), method, c.routes.Channel.Target())
	}
	if metrics.delay != nil && (!hedges || p.retry.waited > 0) {
		metrics.delay.Record(recorder, p.retry.waited.Seconds(), method, c.routes.Channel.Target())
	}
}

func isStaticMethod(o grpc.CallOption) bool {
	_, ok := o.(grpc.StaticMethodCallOption)
	return ok
}
