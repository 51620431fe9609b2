package router

import (
	"slices"
	"strings"

	"google.golang.org/grpc"
	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// The metrics of gRFC A96 that can be known above gRPC, which does not report its transparent
// retries.
var (
	retryLabels = []string{"grpc.method", "grpc.target"}

	retriesMetric = grpcbridge.NewMetric(estats.MetricDescriptor{
		Type: estats.MetricTypeIntHisto, Name: "grpc.client.call.retries", Unit: "{retry}", Labels: retryLabels,
		Description: "Number of retries during the client call. If there were none, nothing is recorded.",
		Bounds:      []float64{1, 2, 3, 4, 5},
	})
	hedgesMetric = grpcbridge.NewMetric(estats.MetricDescriptor{
		Type: estats.MetricTypeIntHisto, Name: "grpc.client.call.hedges", Unit: "{hedge}", Labels: retryLabels,
		Description: "Number of hedges during the client call. If there were none, nothing is recorded.",
		Bounds:      []float64{1, 2, 3, 4, 5},
	})
	retryDelayMetric = grpcbridge.NewMetric(estats.MetricDescriptor{
		Type: estats.MetricTypeFloatHisto, Name: "grpc.client.call.retry_delay", Unit: "s", Labels: retryLabels,
		Description: "Total time without an attempt during the client call, if it was retried.",
		Bounds:      grpcbridge.LatencyBounds(),
	})
)

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
	c.app.Counted.Resent(sent, hedges)
	recorder := c.routes.Channel.Metrics
	if recorder == nil {
		return
	}
	// As in the other metrics of RPCs, only methods of generated code are named (gRFC A66).
	method := "other"
	if slices.ContainsFunc(c.rpc.Options, isStaticMethod) {
		method = strings.TrimPrefix(c.app.Method, "/")
	}
	count := retriesMetric
	if hedges {
		count = hedgesMetric
	}
	count.Record(recorder, float64(sent), method, c.routes.Channel.Target())
	if !hedges || p.retry.waited > 0 {
		retryDelayMetric.Record(recorder, p.retry.waited.Seconds(), method, c.routes.Channel.Target())
	}
}

func isStaticMethod(o grpc.CallOption) bool {
	_, ok := o.(grpc.StaticMethodCallOption)
	return ok
}
