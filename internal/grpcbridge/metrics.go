package grpcbridge

import (
	"reflect"
	_ "unsafe" // for go:linkname

	estats "google.golang.org/grpc/experimental/stats"
)

// The names that google.golang.org/grpc/experimental/stats has seen registered.
// Registering one again ends the process. It is nil if a future gRPC lacks it.
//
//go:linkname registeredMetrics google.golang.org/grpc/experimental/stats.registeredMetrics
var registeredMetrics map[string]bool

// RegisterMetrics registers integer counters, asynchronous integer gauges and
// histograms of floating-point numbers with gRPC, by the Type of their descriptors,
// except those whose name is registered already. Others may still register their names and then take their place: a process
// may link dynxds and gRPC-Go's own xds, both have the metrics of gRFC A78, and their
// import paths decide which is initialized first. So callers look the descriptor up by
// its name (stats.DescriptorForMetric), after initialization. It is for init functions.
//
// gRPC has no way to register a metric only if it is missing, and during initialization
// it is not known whether its own xds is linked. If a future gRPC lacks the hook that
// this needs, nothing is registered, since registering twice would end the process;
// RegisterMetrics then logs one error and returns false.
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
		case estats.MetricTypeFloatHisto:
			estats.RegisterFloat64Histo(d)
		}
		delete(registeredMetrics, d.Name)
	}
	return true
}

var recordersType = reflect.TypeFor[[]estats.MetricsRecorder]()

// Records reports whether a channel's recorder may record anything. gRPC gives each channel a
// list of its stats plugins that record metrics; Records is false for nil and for an empty list.
// If a future gRPC has no such list, Records is true, so that nothing but time is lost.
func Records(recorder estats.MetricsRecorder) bool {
	if recorder == nil {
		return false
	}
	v := reflect.Indirect(reflect.ValueOf(recorder))
	if v.Kind() != reflect.Struct {
		return true
	}
	field := fieldOfType(v.Type(), recordersType)
	return field == nil || v.FieldByIndex(field).Len() > 0
}
