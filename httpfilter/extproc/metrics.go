package extproc

import (
	"time"

	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// The metrics are the times of events in the filter (gRFC A93, "Client-Side Metrics").
var (
	clientHeaders   = metric("client_headers_duration", "the client's headers", "those headers")
	clientHalfClose = metric("client_half_close_duration", "the client's half-close", "that half-close")
	serverHeaders   = metric("server_headers_duration", "the server's headers", "those headers")
	serverTrailers  = metric("server_trailers_duration", "the server's trailers", "those trailers")
)

func metric(name, sees, allows string) *grpcbridge.Metric {
	return grpcbridge.NewMetric(estats.MetricDescriptor{
		Type: estats.MetricTypeFloatHisto, Name: "grpc.client_ext_proc." + name, Unit: "s",
		Description: "Time between when the ext_proc filter sees " + sees + " and when it allows " + allows + " to continue on to the next filter.",
		Labels:      []string{"grpc.target"}, OptionalLabels: []string{"grpc.lb.backend_service"},
		Bounds: grpcbridge.LatencyBounds(),
	})
}

// since records the time since the filter saw the event.
func (s *stream) since(m *grpcbridge.Metric, seen time.Time) {
	m.Record(s.Metrics, time.Since(seen).Seconds(), s.Target, s.cluster)
}
