package configselector_test

import (
	"strings"

	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// meter adds up the metrics of a channel, by "name label label".
type meter struct {
	estats.UnimplementedMetricsRecorder
	xdstest.State
	sums map[string]float64
}

func (m *meter) add(d *estats.MetricDescriptor, n float64, labels []string) {
	m.Change(func() {
		if m.sums == nil {
			m.sums = map[string]float64{}
		}
		m.sums[strings.Join(append([]string{d.Name}, labels...), " ")] += n
	})
}

func (m *meter) RecordInt64Count(h *estats.Int64CountHandle, n int64, labels ...string) {
	m.add(h.Descriptor(), float64(n), labels)
}

func (m *meter) RecordInt64Histo(h *estats.Int64HistoHandle, n int64, labels ...string) {
	m.add(h.Descriptor(), float64(n), labels)
}

func (m *meter) RecordFloat64Histo(h *estats.Float64HistoHandle, n float64, labels ...string) {
	m.add(h.Descriptor(), n, labels)
}

// mirrorsDropped returns how many mirrors were dropped.
func (m *meter) mirrorsDropped() (n float64) {
	m.Change(func() { n = m.sums["dynxds.mirror.dropped passthrough:///bufconn"] })
	return n
}
