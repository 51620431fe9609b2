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

// unsent sums up the metrics that backends send at the end of RPCs, and has what is put back. Only an RPC that comes with some locks it:
// decoding them has taken much longer, and sums of atomics that are always of the same RPCs as their counts are no faster.
type unsent struct {
	mu sync.Mutex
	// sums has what came since the last report. Of counts of RPCs it has those that were put back.
	sums LocalityReport
}

// add adds the selected metrics of a backend's report. Fields that a backend does not set count
// as 0: the message cannot tell the difference.
func (u *unsent) add(r *orcapb.OrcaLoadReport, which Metrics) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if which[CPU] {
		u.sums.CPU = u.sums.CPU.plus(Metric{1, r.GetCpuUtilization()})
	}
	if which[Memory] {
		u.sums.Memory = u.sums.Memory.plus(Metric{1, r.GetMemUtilization()})
	}
	if which[Application] {
		u.sums.Application = u.sums.Application.plus(Metric{1, r.GetApplicationUtilization()})
	}
	named := r.GetNamedMetrics()
	switch {
	case len(named) == 0:
		return
	case which[NamedMetrics+"*"]:
		for name, value := range named {
			u.sums.addNamed(name, Metric{1, value})
		}
		return
	}
	for selected := range which { // the control plane's names, not those that a backend may invent
		if name, ok := strings.CutPrefix(selected, NamedMetrics); ok {
			if value, sent := named[name]; sent {
				u.sums.addNamed(name, Metric{1, value})
			}
		}
	}
}

func (u *unsent) putBack(r *LocalityReport) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sums.merge(r)
}

// take returns what came since the last call.
func (u *unsent) take() LocalityReport {
	u.mu.Lock()
	defer u.mu.Unlock()
	sums := u.sums
	u.sums = LocalityReport{}
	return sums
}
