// Package metrics has the names of the metrics of dynxds, for a stats plugin to enable.
//
// With gRPC's OpenTelemetry plugin:
//
//	opentelemetry.DialOption(opentelemetry.Options{ // google.golang.org/grpc/stats/opentelemetry
//		MetricsOptions: opentelemetry.MetricsOptions{
//			MeterProvider: provider,
//			Metrics:       opentelemetry.DefaultMetrics().Join(metrics.All()),
//		},
//	})
//
// Importing the package turns the metrics of RPCs on, for channels that have a stats plugin:
// without it, gRPC does not know their names, and RPCs pay nothing for them. It also has the outcomes of RPCs
// counted for good, which dynxds.client.in_flight, the status page and CSDS read (docs/tasks/statuspage.md). The metrics are
//
//   - dynxds.client.calls and dynxds.client.call.duration: RPCs and their latency, by route,
//     cluster, and priority of the endpoint,
//   - dynxds.client.call.retries: retries, by the same,
//   - dynxds.client.pick.failures: picks that found no endpoint, by reason,
//   - dynxds.client.in_flight: RPCs that have not ended, by route and cluster,
//   - dynxds.client.config.age: the time since a channel's configuration last changed,
//   - dynxds.client.certificate.left and dynxds.client.certificate.lifetime: how long the certificates that the process presents are
//     still valid, and in all, by file.
//
// docs/reference/metrics.md has their labels and what they cost.
package metrics

import (
	"google.golang.org/grpc/stats"

	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/rpcmetrics"
	"github.com/dynxds/dynxds/xdsclient"
)

func init() {
	grpcbridge.RegisterMetrics(rpcmetrics.Descriptors()...)
	outcomes.Keep()
}

// All returns the names of the metrics of RPCs, of those of xDS clients ("grpc.xds_client.…" of
// gRFC A78, and "dynxds.xds_client.…"), of outlier detection (gRFC A91), of retries (A96) and of the filters that ask a
// service (A92, A93). All are off by default. MetricSet.Remove takes out those that are not wanted.
func All() *stats.MetricSet {
	all := stats.NewMetricSet("grpc.lb.outlier_detection.ejections_enforced", "grpc.lb.outlier_detection.ejections_unenforced",
		"grpc.client.call.retries", "grpc.client.call.hedges", "grpc.client.call.retry_delay",
		"grpc.client_ext_authz.allowed_rpcs", "grpc.client_ext_authz.denied_rpcs", "grpc.client_ext_authz.filter_disabled_rpcs", "grpc.client_ext_authz.failed_rpcs",
		"grpc.client_ext_proc.client_headers_duration", "grpc.client_ext_proc.client_half_close_duration",
		"grpc.client_ext_proc.server_headers_duration", "grpc.client_ext_proc.server_trailers_duration")
	for _, d := range append(rpcmetrics.Descriptors(), xdsclient.Metrics()...) {
		all = all.Add(d.Name)
	}
	return all
}
