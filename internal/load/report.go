package load

import (
	"math"
	"time"
)

// Report is the load of one cluster over an interval.
type Report struct {
	Key
	// Interval is the time that the report covers.
	Interval time.Duration
	// Dropped is the number of RPCs dropped for each category of drop_overloads, TotalDropped
	// that of all dropped RPCs, including circuit breaking.
	Dropped      map[string]uint64
	TotalDropped uint64
	// Localities are those with something to report, in no order.
	Localities []*LocalityReport
}

// LocalityReport is the load of one locality.
type LocalityReport struct {
	ID LocalityID
	Counts
	CPU, Memory, Application Metric
	// Named has the keys of named_metrics in the backends' reports.
	Named map[string]Metric
	// OmittedMetrics is the number of values of named metrics beyond MaxNamed and MaxName.
	OmittedMetrics uint64
}

// Counts are numbers of RPCs, in a Report those in the interval, and those in flight at its
// end.
type Counts struct{ Issued, Succeeded, Failed, InProgress uint64 }

// Metric is the sum of a metric over the RPCs that it came with, and their number.
type Metric struct {
	Count uint64
	Sum   float64
}

// plus returns m if the sum would be no finite number any more, whatever follows.
func (m Metric) plus(o Metric) Metric {
	sum := m.Sum + o.Sum
	if math.IsNaN(sum) || math.IsInf(sum, 0) {
		return m
	}
	return Metric{m.Count + o.Count, sum}
}

func (r *Report) empty() bool { return r.TotalDropped == 0 && len(r.Localities) == 0 }

func (r *LocalityReport) empty() bool {
	return r.Counts == Counts{} && r.CPU.Count+r.Memory.Count+r.Application.Count+r.OmittedMetrics == 0 && len(r.Named) == 0
}

// merge adds all of another report but the RPCs in flight.
func (r *LocalityReport) merge(other *LocalityReport) {
	r.Issued += other.Issued
	r.Succeeded += other.Succeeded
	r.Failed += other.Failed
	r.CPU = r.CPU.plus(other.CPU)
	r.Memory = r.Memory.plus(other.Memory)
	r.Application = r.Application.plus(other.Application)
	r.OmittedMetrics += other.OmittedMetrics
	for name, m := range other.Named {
		r.addNamed(name, m)
	}
}

func (r *LocalityReport) addNamed(name string, m Metric) {
	sum, known := r.Named[name]
	switch {
	case len(name) > MaxName, !known && len(r.Named) >= MaxNamed:
		r.OmittedMetrics += m.Count
		return
	case r.Named == nil:
		r.Named = make(map[string]Metric)
	}
	if sum = sum.plus(m); sum.Count > 0 {
		r.Named[name] = sum
	}
}
