package lbtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/experimental/stats"
)

// Meter records the metrics of a channel. Like gRPC, it refuses records whose labels do not fit.
type Meter struct {
	stats.UnimplementedMetricsRecorder

	mu     sync.Mutex
	counts map[string]int64
}

// RecordInt64Count implements stats.MetricsRecorder.
func (m *Meter) RecordInt64Count(h *stats.Int64CountHandle, n int64, labels ...string) {
	m.add(h.Descriptor(), n, labels)
}

// RecordFloat64Histo implements stats.MetricsRecorder. It counts the values.
func (m *Meter) RecordFloat64Histo(h *stats.Float64HistoHandle, _ float64, labels ...string) {
	m.add(h.Descriptor(), 1, labels)
}

func (m *Meter) add(d *stats.MetricDescriptor, n int64, values []string) {
	names := slices.Concat(d.Labels, d.OptionalLabels)
	if len(names) != len(values) {
		panic(fmt.Sprintf("%s has labels %q, and is recorded with %q", d.Name, names, values))
	}
	text := []string{d.Name}
	for i, name := range names {
		text = append(text, name+"="+values[i])
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts == nil {
		m.counts = make(map[string]int64)
	}
	m.counts[strings.Join(text, " ")] += n
}

// Counts returns what was recorded of the metrics whose names have a prefix, by
// "name label=value label=value".
func (m *Meter) Counts(prefix string) map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := maps.Clone(m.counts)
	maps.DeleteFunc(counts, func(text string, _ int64) bool { return !strings.HasPrefix(text, prefix) })
	return counts
}

// recorder is what gRPC gives to policies: it passes records on to those of the channel's stats
// handlers that take them, of which there may be none.
type recorder struct {
	stats.MetricsRecorder
	handlers []stats.MetricsRecorder
}

func newRecorder(m *Meter) recorder {
	if m == nil {
		return recorder{MetricsRecorder: stats.UnimplementedMetricsRecorder{}}
	}
	return recorder{m, []stats.MetricsRecorder{m}}
}
