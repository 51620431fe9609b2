// Package styled is text whose lines say what they are: a heading, a good state, an error. What prints it decides how that looks,
// such as the terminal of a command. Of the layout of text it has tables only, and it knows no colours.
package styled

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dynxds/dynxds/internal/faults"
)

// Style says what a line is.
type Style int

// The styles. Those of states go from good to bad.
const (
	Plain Style = iota
	Heading
	Good
	Doubtful
	Bad
)

// Line is one line, without its end.
type Line struct {
	Style Style  `json:"style"`
	Text  string `json:"text"`
}

// Text is a sequence of lines, which have no control characters and no space at their ends: whatever peers say, it cannot move a terminal's
// cursor or begin a line of its own. It is not safe for concurrent use.
type Text []Line

// Add adds a line.
func (t *Text) Add(style Style, format string, args ...any) {
	*t = append(*t, Line{style, faults.Printable(strings.TrimRight(fmt.Sprintf(format, args...), " "), "")})
}

// Table is rows of cells, which are printed in columns.
type Table []row

type row struct {
	style Style
	cells []string
}

// Row adds a row. The last cell of a row widens no column.
func (t *Table) Row(style Style, cells ...string) {
	shown := make([]string, len(cells))
	for i, cell := range cells {
		shown[i] = faults.Printable(cell, "")
	}
	*t = append(*t, row{style, shown})
}

// AddTable adds a table, with an indent before each row.
func (t *Text) AddTable(indent string, table Table) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range table {
		fmt.Fprintln(w, indent+strings.Join(row.cells, "\t"))
	}
	w.Flush()
	for i, line := range slices.Collect(strings.Lines(b.String())) {
		t.Add(table[i].style, "%s", strings.TrimSuffix(line, "\n"))
	}
}

// With returns a part of a line about a text, in a format that has it once, or "" if there is no text.
func With(format, text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf(format, text)
}

// AddAll adds the lines of a text as they are, all with one style.
func (t *Text) AddAll(style Style, text string) {
	for line := range strings.Lines(text) {
		*t = append(*t, Line{style, strings.TrimSuffix(line, "\n")})
	}
}

// String returns the lines, without their styles.
func (t Text) String() string {
	var b strings.Builder
	for _, line := range t {
		b.WriteString(line.Text + "\n")
	}
	return b.String()
}

// OfState returns the style of a line about what has these states, which is that of the worst. They are those of resources (as
// CSDS names them), connections, health and of verdicts; others are plain.
func OfState(states ...string) Style {
	worst := Plain
	for _, state := range states {
		worst = max(worst, ofState[state])
	}
	return worst
}

var ofState = map[string]Style{
	"ACKED": Good, "READY": Good, "HEALTHY": Good, "SERVING": Good, "healthy": Good,
	"REQUESTED": Doubtful, "TIMEOUT": Doubtful, "CONNECTING": Doubtful, "IDLE": Doubtful, "DRAINING": Doubtful, "degraded": Doubtful,
	"NACKED": Bad, "DOES_NOT_EXIST": Bad, "RECEIVED_ERROR": Bad, "would be an error": Bad, "TRANSIENT_FAILURE": Bad, "UNHEALTHY": Bad, "NOT_SERVING": Bad, "failing": Bad,
}
