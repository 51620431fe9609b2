package load

import (
	"strings"
	"sync"

	orcapb "github.com/cncf/xds/go/xds/data/orca/v3"
)

// Metrics are the names of the metrics of backends for load reports, as gRFC A85 has them. They are immutable.
type Metrics map[string]bool

// The names in Metrics. Behind NamedMetrics stands a key of named_metrics, or "*" for all of them.
const (
	CPU          = "cpu_utilization"
	Memory       = "mem_utilization"
	Application  = "application_utilization"
	NamedMetrics = "named_metrics."
)

// Backends invent the names of metrics.
const (
	// MaxNamed is how many named metrics of a locality a Report has.
	MaxNamed = 1000
	// MaxName is how many bytes such a name has.
	MaxName = 256
)

// metrics sums up the metrics that backends send at the end of RPCs. Only an RPC that comes with some locks it: decoding them has
// taken much longer, and sums of atomics that are always of the same RPCs as their counts are no faster.
type metrics struct {
	mu sync.Mutex
	// sums has what came since the last report, and no counts of RPCs.
	sums LocalityReport
}

// add adds the selected metrics of a backend's report. Fields that a backend does not set count
// as 0: the message cannot tell the difference.
func (m *metrics) add(r *orcapb.OrcaLoadReport, which Metrics) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if which[CPU] {
		m.sums.CPU = m.sums.CPU.plus(Metric{1, r.GetCpuUtilization()})
	}
	if which[Memory] {
		m.sums.Memory = m.sums.Memory.plus(Metric{1, r.GetMemUtilization()})
	}
	if which[Application] {
		m.sums.Application = m.sums.Application.plus(Metric{1, r.GetApplicationUtilization()})
	}
	named := r.GetNamedMetrics()
	switch {
	case len(named) == 0:
		return
	case which[NamedMetrics+"*"]:
		for name, value := range named {
			m.sums.addNamed(name, Metric{1, value})
		}
		return
	}
	for selected := range which { // the control plane's names, not those that a backend may invent
		if name, ok := strings.CutPrefix(selected, NamedMetrics); ok {
			if value, sent := named[name]; sent {
				m.sums.addNamed(name, Metric{1, value})
			}
		}
	}
}

// take returns what came since the last call.
func (m *metrics) take() LocalityReport {
	m.mu.Lock()
	defer m.mu.Unlock()
	sums := m.sums
	m.sums = LocalityReport{}
	return sums
}
