package grpcbridge

import (
	_ "unsafe" // for go:linkname

	estats "google.golang.org/grpc/experimental/stats"
)

// The names that google.golang.org/grpc/experimental/stats has seen registered.
// Registering one again ends the process. nil if a future gRPC has it no longer.
//
//go:linkname registeredMetrics google.golang.org/grpc/experimental/stats.registeredMetrics
var registeredMetrics map[string]bool

// RegisterMetrics registers integer counters and asynchronous integer gauges with
// gRPC, by the Type of their descriptors, except those whose name is registered
// already. Their names stay free for others to register, who then take their
// place: a process may link dynxds and gRPC-Go's own xds, both have the metrics of
// gRFC A78, and which is initialized first is up to their import paths. So
// whoever records looks the descriptor up by its name
// (stats.DescriptorForMetric), after initialization. It is for init functions.
//
// gRPC offers no way to say "unless it is there", nor does it tell early whether
// its own xds is going to be there. If the hook this needs is gone, nothing is
// registered, because the process could not start if it was linked; RegisterMetrics
// then logs one error and returns false.
func RegisterMetrics(descriptors ...estats.MetricDescriptor) bool {
	if len(registeredMetrics) == 0 { // gRPC registers its own before anyone can call this
		logger.Errorf("gRPC has no registry of metrics as dynxds knows it: the metrics of the xDS client are not reported.")
		return false
	}
	for _, d := range descriptors {
		if registeredMetrics[d.Name] || estats.DescriptorForMetric(d.Name) != nil {
			continue
		}
		switch d.Type {
		case estats.MetricTypeIntCount:
			estats.RegisterInt64Count(d)
		case estats.MetricTypeIntAsyncGauge:
			estats.RegisterInt64AsyncGauge(d)
		}
		delete(registeredMetrics, d.Name)
	}
	return true
}
