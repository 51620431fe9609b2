package grpcbridge

import (
	"slices"
	"sync"
	_ "unsafe" // for go:linkname

	estats "google.golang.org/grpc/experimental/stats"
)

// The names that google.golang.org/grpc/experimental/stats has seen registered.
// Registering one again ends the process. It is nil if a future gRPC lacks it.
//
//go:linkname registeredMetrics google.golang.org/grpc/experimental/stats.registeredMetrics
var registeredMetrics map[string]bool

// RegisterMetrics registers integer counters, asynchronous integer gauges and histograms with
// gRPC, by the Type of their descriptors, except those whose name is registered
// already. Others may still register their names and then take their place: a process
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
		logger.Errorf("gRPC has no registry of metrics as dynxds knows it: the metrics of the xDS client, of outlier detection and of retries are not reported.")
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
		case estats.MetricTypeIntHisto:
			estats.RegisterInt64Histo(d)
		case estats.MetricTypeFloatHisto:
			estats.RegisterFloat64Histo(d)
		}
		delete(registeredMetrics, d.Name)
	}
	return true
}

// FindMetrics returns what is registered under the names of metrics, by name, but for what is of another type, or has other labels. It is
// not for init functions.
func FindMetrics(wanted []estats.MetricDescriptor) map[string]*estats.MetricDescriptor {
	found := make(map[string]*estats.MetricDescriptor)
	for _, want := range wanted {
		if got := find(want); got != nil && len(got.Labels) == len(want.Labels) {
			found[want.Name] = got
		}
	}
	return found
}

// find returns the descriptor in gRPC's registry with the name of a metric. The descriptor may lack the metric's last labels. find
// returns nil if the descriptor has another type, or other labels.
func find(want estats.MetricDescriptor) *estats.MetricDescriptor {
	got := estats.DescriptorForMetric(want.Name)
	if got == nil || got.Type != want.Type {
		return nil
	}
	ours, theirs := slices.Concat(want.Labels, want.OptionalLabels), slices.Concat(got.Labels, got.OptionalLabels)
	if n := len(theirs); n > len(ours) || !slices.Equal(theirs, ours[:n]) {
		return nil
	}
	return got
}

// LatencyBounds returns the buckets of grpc.client.call.duration (gRFC A66), in seconds.
func LatencyBounds() []float64 {
	return []float64{
		0, 0.00001, 0.00005, 0.0001, 0.0003, 0.0006, 0.0008, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008,
		0.01, 0.013, 0.016, 0.02, 0.025, 0.03, 0.04, 0.05, 0.065, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5,
		0.65, 0.8, 1, 2, 5, 10, 20, 50, 100,
	}
}

// Metric is a counter or histogram of gRPC's registry, whichever package has registered it.
type Metric struct {
	find func() *estats.MetricDescriptor
}

// NewMetric registers a metric, see RegisterMetrics. What is registered in its place may lack the last labels, as gRPC-Go's own xds has
// registered some without the optional ones; if it is of another type, or has other labels, nothing is recorded.
func NewMetric(d estats.MetricDescriptor) *Metric {
	RegisterMetrics(d)
	return &Metric{sync.OnceValue(func() *estats.MetricDescriptor { return find(d) })}
}

// Record records a value, with those of the labels, the optional ones last. Nothing is recorded if r is nil. It is not for init functions.
func (m *Metric) Record(r estats.MetricsRecorder, value float64, labels ...string) {
	if r == nil {
		return
	}
	d := m.find()
	if d == nil {
		return
	}
	switch labels = labels[:len(d.Labels)+len(d.OptionalLabels)]; d.Type {
	case estats.MetricTypeIntCount:
		(*estats.Int64CountHandle)(d).Record(r, int64(value), labels...)
	case estats.MetricTypeIntHisto:
		(*estats.Int64HistoHandle)(d).Record(r, int64(value), labels...)
	case estats.MetricTypeFloatHisto:
		(*estats.Float64HistoHandle)(d).Record(r, value, labels...)
	}
}
