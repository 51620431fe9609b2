package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
)

// results are the figures of all benchmarks.
type results struct {
	config map[string]string
	// rows are the names of benchmarks without the peer, in the order they came.
	rows    []string
	samples map[figure][]float64
	// units are those of a row, in the order they came.
	units map[string][]string
}

// figure is one unit of one benchmark of one peer.
type figure struct{ row, peer, unit string }

var peerPart = regexp.MustCompile(`/peer=([^/]+)`)

func read(files []string) (*results, error) {
	r := &results{config: map[string]string{}, samples: map[figure][]float64{}, units: map[string][]string{}}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		reader := benchfmt.NewReader(f, name)
		for reader.Scan() {
			if result, ok := reader.Result().(*benchfmt.Result); ok {
				r.add(result)
			}
		}
		f.Close()
		if err := reader.Err(); err != nil {
			return nil, err
		}
	}
	if len(r.rows) == 0 {
		return nil, fmt.Errorf("there is no benchmark in %v", files)
	}
	return r, nil
}

var processors = regexp.MustCompile(`-\d+$`)

func (r *results) add(b *benchfmt.Result) {
	for _, c := range b.Config {
		r.config[c.Key] = string(c.Value)
	}
	name := processors.ReplaceAllString(b.Name.String(), "")
	peer := ""
	if m := peerPart.FindStringSubmatch(name); m != nil {
		peer = m[1]
	}
	row := peerPart.ReplaceAllString(name, "")
	if !slices.Contains(r.rows, row) {
		r.rows = append(r.rows, row)
	}
	for _, v := range b.Values {
		value, unit := v.Value, v.Unit
		if v.OrigUnit != "" {
			value, unit = v.OrigValue, v.OrigUnit
		}
		if unit == "ns/op" && value == 0 {
			continue // It was taken out.
		}
		f := figure{row, peer, unit}
		r.samples[f] = append(r.samples[f], value)
		if !slices.Contains(r.units[row], unit) {
			r.units[row] = append(r.units[row], unit)
		}
	}
}

// median is the figure's, and false if it was not measured.
func (r *results) median(row, peer, unit string) (float64, bool) {
	values := r.samples[figure{row, peer, unit}]
	if len(values) == 0 {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, true
}

// compare returns by how much the figure of a is that of b, and whether that is
// more than chance. Nothing can be said of a figure beside one that is zero.
func (r *results) compare(row, unit, a, b string) (ratio float64, significant, ok bool) {
	ma, okA := r.median(row, a, unit)
	mb, okB := r.median(row, b, unit)
	if !okA || !okB {
		return 0, false, false
	}
	if ma == mb {
		return 1, false, true
	}
	if mb == 0 {
		return 0, false, false
	}
	sa, sb := r.samples[figure{row, a, unit}], r.samples[figure{row, b, unit}]
	if len(sa) > 1 && len(sb) > 1 && constant(sa) && constant(sb) {
		return ma / mb, true, true // They are counted, and not measured.
	}
	c := benchmath.AssumeNothing.Compare(benchmath.NewSample(sa, &benchmath.DefaultThresholds), benchmath.NewSample(sb, &benchmath.DefaultThresholds))
	return ma / mb, c.P < c.Alpha, true
}

func constant(values []float64) bool {
	return slices.Min(values) == slices.Max(values)
}

// spread is half the range of the figure in percent of its median.
func (r *results) spread(row, peer, unit string) float64 {
	values := r.samples[figure{row, peer, unit}]
	m, ok := r.median(row, peer, unit)
	if !ok || m == 0 {
		return 0
	}
	return 50 * (slices.Max(values) - slices.Min(values)) / m
}
