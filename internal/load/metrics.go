package load

import (
	"maps"
	"math"
	"runtime"
	"sync/atomic"

	orcapb "github.com/cncf/xds/go/xds/data/orca/v3"
)

// Metrics selects the metrics of backends for load reports (gRFC A85). It is immutable.
type Metrics struct {
	CPU, Memory, Application bool
	// AllNamed selects all of named_metrics, Named those with its keys.
	AllNamed bool
	Named    map[string]struct{}
}

// Backends invent the names of metrics.
const (
	// MaxNamed is how many named metrics of a locality a Report has.
	MaxNamed = 1000
	// MaxName is how many bytes such a name has.
	MaxName = 256
)

// metrics sums up the metrics that backends send at the end of RPCs. Writers add to one of two
// cells, without a lock. The reader directs writers to the other cell, and waits the moment
// until the first has none, so that a sum and its count are always of the same RPCs.
type metrics struct {
	cells [2]cell
	// current is the index of the cell to add to. Only moveTo changes it.
	current atomic.Uint32
	// written is set if there is something to take.
	written atomic.Bool
}

type cell struct {
	// writers counts the goroutines that add to the cell.
	writers                  atomic.Int64
	cpu, memory, application sum
	named                    atomic.Pointer[map[string]*sum]
	// omitted counts the values beyond MaxNamed and MaxName.
	omitted atomic.Uint64
}

// sum is the sum of values, and their number.
type sum struct {
	count atomic.Uint64
	bits  atomic.Uint64 // of the float64
}

// add adds v, unless the sum would be no finite number any more, whatever follows.
func (s *sum) add(v float64) {
	for {
		old := s.bits.Load()
		total := math.Float64frombits(old) + v
		if math.IsNaN(total) || math.IsInf(total, 0) {
			return
		}
		if s.bits.CompareAndSwap(old, math.Float64bits(total)) {
			s.count.Add(1)
			return
		}
	}
}

// takeMetric must not be called while values are added.
func (s *sum) takeMetric() Metric {
	return Metric{Count: s.count.Swap(0), Sum: math.Float64frombits(s.bits.Swap(0))}
}

// add adds the selected metrics of a backend's report. Fields that a backend does not set count
// as 0: the message cannot tell the difference.
func (m *metrics) add(r *orcapb.OrcaLoadReport, which *Metrics) {
	c := m.enter()
	defer c.writers.Add(-1)
	if !m.written.Load() {
		m.written.Store(true)
	}
	if which.CPU {
		c.cpu.add(r.GetCpuUtilization())
	}
	if which.Memory {
		c.memory.add(r.GetMemUtilization())
	}
	if which.Application {
		c.application.add(r.GetApplicationUtilization())
	}
	if !which.AllNamed && len(which.Named) == 0 {
		return
	}
	for name, value := range r.GetNamedMetrics() {
		if _, ok := which.Named[name]; ok || which.AllNamed {
			c.addNamed(name, value)
		}
	}
}

// enter returns the current cell with the caller among its writers.
func (m *metrics) enter() *cell {
	for {
		current := m.current.Load()
		c := &m.cells[current]
		c.writers.Add(1)
		if m.current.Load() == current {
			return c
		}
		c.writers.Add(-1)
	}
}

func (c *cell) addNamed(name string, v float64) {
	for {
		p := c.named.Load()
		var named map[string]*sum
		if p != nil {
			named = *p
		}
		if s := named[name]; s != nil {
			s.add(v)
			return
		}
		if len(named) >= MaxNamed || len(name) > MaxName {
			c.omitted.Add(1)
			return
		}
		more := make(map[string]*sum, len(named)+1)
		maps.Copy(more, named)
		more[name] = new(sum)
		c.named.CompareAndSwap(p, &more)
	}
}

// moveTo moves what was added since the last call to r.
func (m *metrics) moveTo(r *LocalityReport) {
	c := &m.cells[m.current.Load()]
	m.current.Store(1 - m.current.Load())
	for c.writers.Load() > 0 {
		runtime.Gosched()
	}
	r.CPU, r.Memory, r.Application = c.cpu.takeMetric(), c.memory.takeMetric(), c.application.takeMetric()
	r.OmittedMetrics = c.omitted.Swap(0)
	c.takeNamed(r)
}

// takeNamed keeps the names that have values, for the next time, and removes the others.
func (c *cell) takeNamed(r *LocalityReport) {
	p := c.named.Load()
	if p == nil {
		return
	}
	r.Named = make(map[string]Metric, len(*p))
	for name, s := range *p {
		if m := s.takeMetric(); m.Count > 0 {
			r.Named[name] = m
		}
	}
	if len(r.Named) == len(*p) {
		return
	}
	if len(r.Named) == 0 {
		c.named.Store(nil)
		return
	}
	kept := make(map[string]*sum, len(r.Named))
	for name := range r.Named {
		kept[name] = (*p)[name]
	}
	c.named.Store(&kept)
}
