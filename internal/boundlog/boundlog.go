// Package boundlog is gRPC's log with a budget: what peers cause takes a limited number of lines, of
// limited length.
//
// All lines of the process whose cause is a management server, a DNS server or a backend go through it.
// The format of a line is its kind. A kind has some lines a second, as do all kinds together
// (bounds.ClientLines); the rest is counted, and the next line of the kind says how many were left out.
// Each text in a line is one printable line of bounds.ErrorText at most.
package boundlog

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/grpclog"

	"github.com/dynxds/dynxds/internal/bounds"
)

// severity is that of a line, which has a budget of its own: lines that nobody reads, as gRPC's log is at
// warning level, take nothing from the others.
type severity int

const (
	info severity = iota
	warning
	failure
	severities
)

// Logger is a component of gRPC's log. It is safe for concurrent use.
type Logger struct {
	component grpclog.DepthLoggerV2
	lines     [severities]*lines
}

// process has the budgets of the process, which all components share.
var process = newLines(grpclog.Component("dynxds"))

// unlimited says that there is no limit of lines, see LiftLimits.
var unlimited atomic.Bool

// LiftLimits removes the limits on lines, but not on texts. It is for tests of a package that look for lines
// after many others.
func LiftLimits() { unlimited.Store(true) }

// Component returns the component with a name.
func Component(name string) *Logger {
	return &Logger{component: grpclog.Component(name), lines: process}
}

func newLines(component grpclog.DepthLoggerV2) (all [severities]*lines) {
	for s := range severities {
		all[s] = &lines{severity: s, component: component, kinds: make(map[string]*kind)}
	}
	return all
}

func (s severity) write(to grpclog.DepthLoggerV2, text string, depth int) {
	switch s {
	case info:
		to.InfoDepth(depth+1, text)
	case warning:
		to.WarningDepth(depth+1, text)
	default:
		to.ErrorDepth(depth+1, text)
	}
}

// Infof logs at info level. The format has to be a constant.
func (l *Logger) Infof(format string, args ...any) { l.line(info, format, args).write(1) }

// Warningf logs at warning level. The format has to be a constant.
func (l *Logger) Warningf(format string, args ...any) { l.line(warning, format, args).write(1) }

// Errorf logs at error level. The format has to be a constant.
func (l *Logger) Errorf(format string, args ...any) { l.line(failure, format, args).write(1) }

// Line is a line to be written later. The zero value is none.
type Line struct {
	component grpclog.DepthLoggerV2
	severity  severity
	text      string
}

// Info returns a line at info level that is written by its Write, for callers that hold a lock: writing may
// block.
func (l *Logger) Info(format string, args ...any) Line { return l.line(info, format, args) }

// Warning is like Info, for a line at warning level.
func (l *Logger) Warning(format string, args ...any) Line { return l.line(warning, format, args) }

// Write writes the line, if it is one.
func (x Line) Write() { x.write(1) }

func (x Line) write(depth int) {
	if x.component != nil {
		x.severity.write(x.component, x.text, depth+1)
	}
}

// line returns a line, or none if the budget does not allow it. Nothing is formatted then.
func (l *Logger) line(s severity, format string, args []any) Line {
	omitted := 0
	if !unlimited.Load() {
		var ok bool
		if omitted, ok = l.lines[s].take(format); !ok {
			return Line{}
		}
	}
	limit := bounds.ClientLine
	wrapped := make([]any, len(args))
	for i, a := range args {
		wrapped[i] = arg{a}
		if stack, ok := a.([]byte); ok {
			wrapped[i], limit = stack, limit+len(stack)
		}
	}
	text := fmt.Sprintf(format, wrapped...)
	if len(text) > limit {
		text = bounds.Text(text, limit)
	}
	if omitted > 0 {
		text += fmt.Sprintf(" (%d lines like this one were left out of the log before)", omitted)
	}
	return Line{l.component, s, text}
}

// arg is a value in a line, written as one printable line of limited length. The stack of a panic, which is a
// []byte, is none.
type arg struct{ value any }

// Format implements fmt.Formatter.
func (a arg) Format(f fmt.State, verb rune) {
	format := fmt.FormatString(f, verb)
	text, isText := a.value.(string)
	switch {
	case isText && verb == 'q' && len(text) <= bounds.ErrorText:
		fmt.Fprintf(f, format, text)
	case isText:
		fmt.Fprintf(f, format, oneLine(text))
	default:
		io.WriteString(f, oneLine(fmt.Sprintf(format, a.value)))
	}
}

// lineBreaks are those of errors that list several.
var lineBreaks = regexp.MustCompile(`\n[ \t]*`)

func oneLine(text string) string {
	if strings.Contains(text[:min(len(text), bounds.ErrorText)], "\n") {
		text = lineBreaks.ReplaceAllLiteralString(strings.ReplaceAll(text, ":\n", ":"), "; ")
	}
	return bounds.Text(text, bounds.ErrorText)
}
