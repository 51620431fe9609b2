package load

import "time"

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

func (m Metric) plus(o Metric) Metric { return Metric{m.Count + o.Count, m.Sum + o.Sum} }

func (r *Report) empty() bool { return r.TotalDropped == 0 && len(r.Localities) == 0 }

func (r *LocalityReport) empty() bool {
	return r.Counts == Counts{} && r.CPU.Count+r.Memory.Count+r.Application.Count+r.OmittedMetrics == 0 && len(r.Named) == 0
}

func (r *Report) addDrops(category string, n uint64) {
	r.TotalDropped += n
	if n == 0 || category == "" {
		return
	}
	if r.Dropped == nil {
		r.Dropped = make(map[string]uint64)
	}
	r.Dropped[category] += n
}

// merge adds an earlier report, whose time the interval of r includes.
func (r *Report) merge(earlier *Report) {
	for category, n := range earlier.Dropped {
		r.addDrops(category, n)
		r.TotalDropped -= n // it is in the total below
	}
	r.TotalDropped += earlier.TotalDropped
	known := make(map[LocalityID]*LocalityReport, len(r.Localities))
	for _, l := range r.Localities {
		known[l.ID] = l
	}
	for _, e := range earlier.Localities {
		if l := known[e.ID]; l != nil {
			l.merge(e)
			continue
		}
		// If it still had RPCs in flight, it would be in r.
		if e.InProgress = 0; !e.empty() {
			r.Localities = append(r.Localities, e)
		}
	}
}

func (r *LocalityReport) merge(earlier *LocalityReport) {
	r.Issued += earlier.Issued
	r.Succeeded += earlier.Succeeded
	r.Failed += earlier.Failed
	r.CPU = r.CPU.plus(earlier.CPU)
	r.Memory = r.Memory.plus(earlier.Memory)
	r.Application = r.Application.plus(earlier.Application)
	r.OmittedMetrics += earlier.OmittedMetrics
	if len(earlier.Named) > 0 && r.Named == nil {
		r.Named = make(map[string]Metric)
	}
	for name, m := range earlier.Named {
		if _, ok := r.Named[name]; !ok && len(r.Named) >= MaxNamed {
			r.OmittedMetrics += m.Count
			continue
		}
		r.Named[name] = r.Named[name].plus(m)
	}
}
