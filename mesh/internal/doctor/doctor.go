// Package doctor follows the way of an RPC and says at which step it fails, and what to do about that: bootstrap, management
// servers, Listener, routes, clusters, endpoints.
//
// [Channel] tries each step itself, as a program with the same bootstrap would; [Process] takes what a running process says of its
// channels. The result is a [Report], a plain value for JSON. The package opens one channel for the length of an examination,
// sends health checks to endpoints, and no RPC of the application. It explains no single RPC: package explain does.
package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/internal/styled"
)

// Result is how a check ended.
type Result string

// The values of Result.
const (
	OK Result = "ok"
	// Warning: RPCs work, or it is not known whether they do.
	Warning Result = "warning"
	// Failed: RPCs fail, all or those to an endpoint.
	Failed Result = "failed"
)

// Check is one step of the way.
type Check struct {
	Result Result `json:"result"`
	// Step is the kind of the step, such as "Listener", and Name what was looked at, which may be empty.
	Step string `json:"step"`
	Name string `json:"name,omitempty"`
	// Text is what was found, and Fix what to do unless that is good.
	Text string `json:"text"`
	Fix  string `json:"fix,omitempty"`
	// Excerpt is the lines of a file that are wrong.
	Excerpt []string `json:"excerpt,omitempty"`
}

// Report is the checks in the order of the way.
type Report struct {
	Of     string  `json:"of"`
	Checks []Check `json:"checks"`
	// Program is what to look at in a program whose RPCs fail although no check has, with the errors that it gets.
	Program []string `json:"program,omitempty"`
}

// Failed reports whether a check has failed.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Result == Failed })
}

func (r *Report) ok(step, name, format string, args ...any) {
	r.Add(OK, "", step, name, format, args...)
}

func (r *Report) warn(fix, step, name, format string, args ...any) {
	r.Add(Warning, fix, step, name, format, args...)
}

func (r *Report) fail(fix, step, name, format string, args ...any) {
	r.Add(Failed, fix, step, name, format, args...)
}

// Add adds a check, whose text is made as by fmt.Sprintf.
func (r *Report) Add(result Result, fix, step, name, format string, args ...any) {
	text := bounds.Text(fmt.Sprintf(format, args...), bounds.ErrorText)
	r.Checks = append(r.Checks, Check{Result: result, Step: step, Name: faults.Shorten(name, faults.MaxQuoted), Text: text, Fix: fix})
}

// marks stand before the lines of checks.
var marks = map[Result]struct {
	mark  string
	style styled.Style
}{OK: {"✓", styled.Good}, Warning: {"!", styled.Doubtful}, Failed: {"✗", styled.Bad}}

// Lines returns the report for a terminal: a line for each check, what to do below those that are not good, and at the end
// the first that failed.
func (r *Report) Lines() (text styled.Text) {
	var table styled.Table
	var failed []*Check
	for i := range r.Checks {
		c := &r.Checks[i]
		m := marks[c.Result]
		of := c.Text
		if c.Name != "" {
			of = c.Name + ": " + c.Text
		}
		table.Row(m.style, m.mark+" "+c.Step, of)
		for _, excerpt := range c.Excerpt {
			table.Row(styled.Plain, "", excerpt)
		}
		if c.Fix != "" {
			table.Row(styled.Plain, "", "→ "+c.Fix)
		}
		if c.Result == Failed {
			failed = append(failed, c)
		}
	}
	text.AddTable("", table)
	text.Add(styled.Plain, "")
	if n := len(failed); n > 0 {
		text.Add(styled.Bad, "%s: %d of %s failed; first: %s", r.Of, n, faults.Count(len(r.Checks), "check"), strings.TrimSpace(failed[0].Step+" "+failed[0].Name))
	} else {
		text.Add(styled.Heading, "%s: %s, none failed", r.Of, faults.Count(len(r.Checks), "check"))
		if len(r.Program) > 0 {
			text.Add(styled.Plain, "If the program fails nevertheless, with")
		}
		for _, what := range r.Program {
			text.Add(styled.Plain, "  %s", what)
		}
	}
	return text
}
