package report

import (
	"fmt"
	"strings"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/scenario"
)

// barWidth is the columns of a bar that stands for all RPCs.
const barWidth = 20

// shareTable prints who answered what part of which method's RPCs.
type shareTable struct {
	backends []Backend
	methods  []string
}

// lines returns the table: a row per backend, a column per method, one for
// all, and a last one that draws it.
func (t shareTable) lines(counts scenario.Counts, s style) []string {
	header := fmt.Sprintf("%-10s %-8s", "backend", "cluster")
	for _, m := range t.methods {
		header += fmt.Sprintf("  %*s", width(m), m)
	}
	lines := []string{s.bold(header + fmt.Sprintf("  %7s", "all"))}
	for _, b := range t.backends {
		row := fmt.Sprintf("%-10s %-8s", b.Name, b.Cluster)
		for _, m := range t.methods {
			row += fmt.Sprintf("  %*s", width(m), cell(counts, b.Name, m))
		}
		share, _ := counts.Share(b.Name)
		row += fmt.Sprintf("  %7s  %s", cell(counts, b.Name), bar(share))
		lines = append(lines, strings.TrimRight(row, " "))
	}
	last := fmt.Sprintf("%-10s %-8s", "RPCs", "")
	for _, m := range t.methods {
		last += fmt.Sprintf("  %*s", width(m), count(counts.Of("", m)))
	}
	return append(lines, s.faint(last+fmt.Sprintf("  %7s", count(counts.Of("")))))
}

// judged returns a step's table, what was expected of it, its speed, and the
// judgement.
func (t shareTable) judged(r scenario.Result, s style) []string {
	lines := append([]string{""}, t.lines(r.Counts, s)...)
	lines = append(lines, expectations(r.Checks)...)
	lines = append(lines, speed(r.Speed))
	return append(lines, verdict(r, s)...)
}

// expectations are in words, one sentence per group of methods.
func expectations(checks []scenario.Check) []string {
	text := ""
	for len(checks) > 0 {
		n := 1
		for n < len(checks) && same(checks[n].Methods, checks[0].Methods) {
			n++
		}
		if text != "" {
			text += "; "
		}
		if methods := checks[0].Methods; len(methods) > 0 {
			text += "of " + strings.Join(methods, " and ") + " "
		}
		text += expectation(checks[:n])
		checks = checks[n:]
	}
	if text == "" {
		return nil
	}
	return wrap(fmt.Sprintf("Expected (± is %d standard deviations): %s.", scenario.Sigmas, text), textWidth, "  ")
}

// expectation is what is expected of one group.
func expectation(checks []scenario.Check) string {
	var parts []string
	for _, c := range checks {
		switch {
		case c.Want == 0:
		case c.Tolerance == 0:
			parts = append(parts, fmt.Sprintf("%s %.0f%%", c.Backend, 100*c.Want))
		default:
			parts = append(parts, fmt.Sprintf("%s %.0f±%s", c.Backend, 100*c.Want, percent(c.Tolerance)))
		}
	}
	return strings.Join(parts, ", ")
}

func same(a, b []string) bool { return strings.Join(a, " ") == strings.Join(b, " ") }

func width(method string) int { return max(7, len(method)) }

func cell(counts scenario.Counts, backend string, methods ...string) string {
	share, ok := counts.Share(backend, methods...)
	if !ok {
		return "-"
	}
	return percent(share)
}

func bar(share float64) string { return strings.Repeat("#", int(share*barWidth+0.5)) }
