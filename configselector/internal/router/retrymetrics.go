package router

import (
	"strings"

	"google.golang.org/grpc"
	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// The metrics of gRFC A96 that can be known above gRPC, which does not report its transparent
// retries.
var (
	retriesMetric = retryMetric(estats.MetricTypeIntHisto, "retries", "{retry}", []float64{1, 2, 3, 4, 5},
		"Number of retries during the client call. If there were none, nothing is recorded.")
	hedgesMetric = retryMetric(estats.MetricTypeIntHisto, "hedges", "{hedge}", []float64{1, 2, 3, 4, 5},
		"Number of hedges during the client call. If there were none, nothing is recorded.")
	retryDelayMetric = retryMetric(estats.MetricTypeFloatHisto, "retry_delay", "s", grpcbridge.LatencyBounds(),
		"Total time without an attempt during the client call, if it was retried.")
)

func retryMetric(typ estats.MetricType, name, unit string, bounds []float64, description string) *grpcbridge.Metric {
	return grpcbridge.NewMetric(estats.MetricDescriptor{
		Type: typ, Name: "grpc.client.call." + name, Unit: unit, Description: description,
		Labels: []string{"grpc.method", "grpc.target"}, Bounds: bounds,
	})
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
	recorder, target := c.routes.Channel.Metrics, c.routes.Channel.Target()
	c.app.Counted.Resent(sent, hedges)
	// As in the other metrics of RPCs, only methods of generated code are named (gRFC A66).
	method := "other"
	for _, o := range c.rpc.Options {
		if _, ok := o.(grpc.StaticMethodCallOption); ok {
			method = strings.TrimPrefix(c.app.Method, "/")
		}
	}
	count := retriesMetric
	if hedges {
		count = hedgesMetric
	}
	count.Record(recorder, float64(sent), method, target)
	if !hedges || p.retry.waited > 0 {
		retryDelayMetric.Record(recorder, p.retry.waited.Seconds(), method, target)
	}
}
