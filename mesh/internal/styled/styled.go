// Package styled is text whose lines say what they are: a heading, a good state, an error. What prints it decides how that looks,
// such as the terminal of a command. It is not for the layout of text, and knows no colours.
package styled

import (
	"fmt"
	"strings"
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
	Style Style
	Text  string
}

// Text is a sequence of lines. It is not safe for concurrent use.
type Text []Line

// Add adds a line.
func (t *Text) Add(style Style, format string, args ...any) {
	*t = append(*t, Line{style, fmt.Sprintf(format, args...)})
}

// AddAll adds the lines of a text, all with one style.
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
