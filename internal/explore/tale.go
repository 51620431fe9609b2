package explore

import (
	"fmt"
	"strings"
)

// Tale is the first error of a trial, and what the trial tells of its path. Trials embed it.
type Tale struct {
	fault string
	lines []string
	told  bool
}

// Fault implements Trial.
func (t *Tale) Fault() string { return t.fault }

// Fail notes an error, unless there is one.
func (t *Tale) Fail(format string, args ...any) {
	if t.fault == "" {
		t.fault = fmt.Sprintf(format, args...)
		t.Tell("fault: %s", t.fault)
	}
}

// Tell adds a line, if the path is described.
func (t *Tale) Tell(format string, args ...any) {
	if t.told {
		t.lines = append(t.lines, "\t"+fmt.Sprintf(format, args...))
	}
}

// tale implements teller.
func (t *Tale) tale() *Tale { return t }

// teller is a Trial that embeds a Tale.
type teller[E any] interface {
	Trial[E]
	tale() *Tale
}

// Describe follows a path until silence, and returns what the trial tells.
func Describe[E any](x teller[E], path []E) string {
	defer x.End()
	t := x.tale()
	t.told = true
	for _, e := range path {
		x.Do(e)
	}
	if t.fault == "" {
		t.Tell("until silence:")
		x.Settle()
	}
	return strings.Join(t.lines, "\n")
}
