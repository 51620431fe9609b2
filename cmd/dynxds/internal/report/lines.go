package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/scenario"
)

// Lines is the Reporter for pipes and files: plain lines, each written once.
type Lines struct {
	out   io.Writer
	table shareTable
}

var _ Reporter = (*Lines)(nil)

// NewLines returns a Reporter that writes lines to out.
func NewLines(out io.Writer) *Lines { return &Lines{out: out} }

// Interval implements Reporter.
func (*Lines) Interval() time.Duration { return time.Second }

// SetUp implements Reporter.
func (l *Lines) SetUp(s SetUp) {
	l.table = shareTable{backends: s.Backends, methods: s.Methods}
	l.print(introduction(s)...)
}

// Announced implements scenario.Observer.
func (l *Lines) Announced(a scenario.Announcement) {
	l.print("", heading(a))
	l.print(wrap(a.Text, textWidth, "")...)
}

// Progressed implements scenario.Observer.
func (l *Lines) Progressed(p scenario.Progress) {
	line := fmt.Sprintf("%7s", seconds(p.Elapsed))
	for _, b := range l.table.backends {
		line += fmt.Sprintf("   %s %5s", b.Name, cell(p.Counts, b.Name))
	}
	l.print(line + "   " + count(int(p.Speed.Rate)) + " RPC/s   " + count(p.Failed) + " failed")
}

// Judged implements scenario.Observer.
func (l *Lines) Judged(r scenario.Result) {
	l.print(l.table.judged(r, plain)...)
}

// Finished implements scenario.Observer.
func (l *Lines) Finished(s scenario.Summary) {
	l.print("")
	l.print(ending(s, plain)...)
}

// print does not look at write errors: who reads may stop doing so, and the
// exit status says how the demo went.
func (l *Lines) print(lines ...string) {
	_, _ = io.WriteString(l.out, strings.Join(lines, "\n")+"\n")
}
