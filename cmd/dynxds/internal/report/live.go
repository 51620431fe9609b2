package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/scenario"
)

// Live is the Reporter for terminals. What is over scrolls up; the table of the
// step under way is redrawn at the bottom, in place.
type Live struct {
	out   io.Writer
	style style
	table shareTable
	// drawn is how many lines of the table are on the screen, above the
	// cursor.
	drawn int
}

var _ Reporter = (*Live)(nil)

// NewLive returns a Reporter for a terminal that understands ANSI's cursor
// movements.
func NewLive(out io.Writer, colour bool) *Live { return &Live{out: out, style: style(colour)} }

// Interval implements Reporter.
func (*Live) Interval() time.Duration { return 100 * time.Millisecond }

// SetUp implements Reporter.
func (l *Live) SetUp(s SetUp) {
	l.table = shareTable{backends: s.Backends, methods: s.Methods}
	l.scroll(introduction(s)...)
}

// Announced implements scenario.Observer.
func (l *Live) Announced(a scenario.Announcement) {
	l.scroll("", l.style.bold(heading(a)))
	l.scroll(wrap(a.Text, textWidth, "")...)
}

// Progressed implements scenario.Observer.
func (l *Live) Progressed(p scenario.Progress) {
	state := "waiting for an RPC that shows the change"
	if p.Arrived {
		state = "the change has arrived"
	}
	lines := append([]string{""}, l.table.lines(p.Counts, l.style)...)
	l.draw(append(lines,
		speed(p.Speed)+"   "+count(p.Failed)+" failed",
		l.style.faint(seconds(p.Elapsed)+" of "+seconds(p.Planned)+", "+state))...)
}

// Judged implements scenario.Observer.
func (l *Live) Judged(r scenario.Result) {
	l.scroll(l.table.judged(r, l.style)...)
}

// Finished implements scenario.Observer.
func (l *Live) Finished(s scenario.Summary) {
	l.scroll("")
	l.scroll(ending(s, l.style)...)
}

const (
	clearLine  = "\x1b[K"
	clearBelow = "\x1b[J"
	// A line that does not fit would wrap and put the cursor a line lower than
	// draw believes: while the table is drawn such lines are cut instead.
	noWrap   = "\x1b[?7l"
	wrapping = "\x1b[?7h"
)

// draw replaces the table.
func (l *Live) draw(lines ...string) {
	text := l.top() + noWrap
	for _, line := range lines {
		text += line + clearLine + "\n"
	}
	l.drawn = len(lines)
	_, _ = io.WriteString(l.out, text+wrapping+clearBelow)
}

// scroll puts lines in the table's place that stay.
func (l *Live) scroll(lines ...string) {
	text := l.top()
	if l.drawn > 0 {
		text += clearBelow
	}
	l.drawn = 0
	_, _ = io.WriteString(l.out, text+strings.Join(lines, "\n")+"\n")
}

// top moves the cursor to the table's first line.
func (l *Live) top() string {
	if l.drawn == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\r", l.drawn)
}
