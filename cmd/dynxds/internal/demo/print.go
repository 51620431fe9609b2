package demo

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// printLines prints lines. It ignores write errors: a reader may stop reading, and the exit status reports the outcome.
func printLines(out io.Writer, lines ...string) {
	_, _ = io.WriteString(out, strings.Join(lines, "\n")+"\n")
}

// columns are the backends, each with its cluster, and the methods, in the order in which they are shown.
type columns struct {
	backends [][2]string
	methods  []string
}

// counts are answered RPCs by backend and method.
type counts map[[2]string]int

// of returns the number of RPCs of the methods that a backend answered. No methods means all methods, and ""
// all backends.
func (c counts) of(backend string, methods ...string) int {
	sum := 0
	for key, n := range c {
		if (backend == "" || key[0] == backend) && (len(methods) == 0 || slices.Contains(methods, key[1])) {
			sum += n
		}
	}
	return sum
}

// share returns a backend's part of the RPCs of the methods, 0 if there were none.
func (c counts) share(backend string, methods ...string) float64 {
	return float64(c.of(backend, methods...)) / float64(max(1, c.of("", methods...)))
}

// percent is share with one digit, or "-" if there were no RPCs.
func (c counts) percent(backend string, methods ...string) string {
	if c.of("", methods...) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*c.share(backend, methods...))
}

// table has a row for each backend and a column for each method, and a column for all of them, which is also drawn
// as a bar.
func (cols columns) table(c counts) []string {
	width := func(method string) int { return max(7, len(method)) }
	header, last := fmt.Sprintf("%-10s %-8s", "backend", "cluster"), fmt.Sprintf("%-10s %-8s", "RPCs", "")
	for _, m := range cols.methods {
		header += fmt.Sprintf("  %*s", width(m), m)
		last += fmt.Sprintf("  %*s", width(m), thousands(c.of("", m)))
	}
	table := []string{header + fmt.Sprintf("  %7s", "all")}
	for _, b := range cols.backends {
		row := fmt.Sprintf("%-10s %-8s", b[0], b[1])
		for _, m := range cols.methods {
			row += fmt.Sprintf("  %*s", width(m), c.percent(b[0], m))
		}
		row += fmt.Sprintf("  %7s  %s", c.percent(b[0]), strings.Repeat("#", int(c.share(b[0])*20+0.5)))
		table = append(table, strings.TrimRight(row, " "))
	}
	return append(table, last+fmt.Sprintf("  %7s", thousands(c.of(""))))
}

// progress is the state of a step under way.
func (cols columns) progress(t *tally, elapsed time.Duration) string {
	line := fmt.Sprintf("%5.1f s", elapsed.Seconds())
	for _, b := range cols.backends {
		line += fmt.Sprintf("   %s %5s", b[0], t.shares().percent(b[0]))
	}
	return line + "   " + thousands(t.failed) + " failed"
}

// verdict is what a step showed.
func (cols columns) verdict(t *tally, faults []string) []string {
	lines := append([]string{""}, cols.table(t.shares())...)
	if len(faults) > 0 {
		return append(lines, wrap("NOT OBSERVED: "+strings.Join(faults, "; ")+".", "  ")...)
	}
	lines = append(lines, wrap(cols.expected(&t.expect, t.counted), "  ")...)
	failed := "none failed"
	if t.failed > 0 {
		failed = thousands(t.failed) + " failed, in flight on the connection that broke"
	}
	return append(lines, wrap(fmt.Sprintf("Observed: %v from the change to the first RPC that shows it. %s answered, %s.",
		t.shown.Sub(t.began).Round(10*time.Microsecond), plural(t.answered.of(""), "RPC", "RPCs"), failed), "  ")...)
}

// expected says what share each backend was to have of the RPCs that were counted.
func (cols columns) expected(e *expectation, c counts) string {
	var groups []string
	for _, g := range e.groups {
		var shares []string
		for _, b := range cols.backends {
			share, allowed := g.shares[b[0]], ""
			if tolerance := tolerance(share, c.of("", g.methods...)); tolerance > 0 {
				allowed = fmt.Sprintf("±%.1f", 100*tolerance)
			}
			if share > 0 {
				shares = append(shares, fmt.Sprintf("%s %.0f%s%%", b[0], 100*share, allowed))
			}
		}
		text := strings.Join(shares, ", ")
		if len(g.methods) > 0 {
			text = "of " + strings.Join(g.methods, " and ") + " " + text
		}
		groups = append(groups, text)
	}
	return fmt.Sprintf("Expected (± is %d standard deviations): %s.", sigmas, strings.Join(groups, "; "))
}

// wrap breaks text into lines that fit a terminal of 80 columns, indented from the second on.
func wrap(text, indent string) []string {
	const width = 78
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) > width:
			lines = append(lines, line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// thousands formats a number with its digits grouped.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// plural is a number with the noun that agrees with it.
func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + more
}
