package demo

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// sampling is the time between two samples of a chart, progressEvery how many there are between two lines of progress
	// where nothing can be drawn in place.
	sampling      = 200 * time.Millisecond
	progressEvery = int(time.Second / sampling)
	// chartWidth is the most columns of a chart. When there would be more, two become one.
	chartWidth = 40
)

// chart is the share of each backend in the RPCs over time, with a mark where each step began. It is safe for concurrent
// use.
type chart struct {
	backends [][2]string

	mu sync.Mutex
	// columns have the RPCs of some samples each, by backend.
	columns []map[string]int
	perEach int
	// samples are how many the last column has.
	samples int
	// marks has the column that each step began in, and title the step under way.
	marks []int
	title string
	// seen are the totals of the last sample.
	seen map[string]int
}

func newChart(backends [][2]string) *chart {
	return &chart{backends: backends, perEach: 1, seen: map[string]int{}}
}

// begin marks the begin of a step.
func (c *chart) begin(title string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.title, c.samples = title, c.perEach // the next sample begins a column
	c.marks = append(c.marks, len(c.columns))
}

// sample adds the RPCs since the last sample, by the totals of backends.
func (c *chart) sample(totals map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.samples >= c.perEach {
		if len(c.columns) >= chartWidth {
			c.halve()
		}
		c.columns, c.samples = append(c.columns, map[string]int{}), 0
	}
	last := c.columns[len(c.columns)-1]
	for backend, n := range totals {
		last[backend] += n - c.seen[backend]
		c.seen[backend] = n
	}
	c.samples++
}

// halve makes one column of each two.
func (c *chart) halve() {
	c.perEach *= 2
	var columns []map[string]int
	for pair := range slices.Chunk(c.columns, 2) {
		for _, other := range pair[1:] {
			for backend, n := range other {
				pair[0][backend] += n
			}
		}
		columns = append(columns, pair[0])
	}
	c.columns = columns
	for i := range c.marks {
		c.marks[i] /= 2
	}
}

// share is a backend's part of the RPCs of a column, 0 if there were none.
func (c *chart) share(column int, backend string) float64 {
	sum := 0
	for _, n := range c.columns[column] {
		sum += n
	}
	return float64(c.columns[column][backend]) / float64(max(1, sum))
}

// heights are the characters of shares from 0 to 1.
var heights = []rune(" ▁▂▃▄▅▆▇█")

// text draws the chart for a terminal: a line for each backend with its last share, and one with the steps.
func (c *chart) text(failed int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, backend := range c.backends {
		last, line := 0.0, make([]rune, len(c.columns))
		for i := range c.columns {
			last = c.share(i, backend[0])
			line[i] = heights[int(last*float64(len(heights)-1)+0.5)]
		}
		fmt.Fprintf(&b, "%-10s %-8s %5.1f%%  │%s\n", backend[0], backend[1], 100*last, string(line))
	}
	fmt.Fprintf(&b, "%-26s  └%s  %s failed\n", "step", c.axis(), thousands(failed))
	return b.String()
}

// axis has the number of each step where it began, and a line elsewhere.
func (c *chart) axis() string {
	line := []rune(strings.Repeat("─", max(len(c.columns), 1)))
	for i, at := range c.marks {
		if at < len(line) {
			line[at] = rune('1' + i)
		}
	}
	return string(line)
}
