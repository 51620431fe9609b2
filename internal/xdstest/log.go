package xdstest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// Log is a log that tests read; it is an io.Writer for grpclog and the like. The zero Log
// is empty. It is safe for concurrent use.
type Log struct {
	state State
	text  bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.state.Change(func() { l.text.Write(p) })
	return len(p), nil
}

// Count returns the number of lines that have all of the texts.
func (l *Log) Count(texts ...string) (n int) {
	l.state.Look(func() { n = l.count(texts) })
	return n
}

func (l *Log) count(texts []string) (n int) {
lines:
	for line := range strings.Lines(l.text.String()) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue lines
			}
		}
		n++
	}
	return n
}

// After returns the rest of each line with the text.
func (l *Log) After(text string) (rest []string) {
	for line := range strings.Lines(l.String()) {
		if _, after, ok := strings.Cut(line, text); ok {
			rest = append(rest, strings.TrimSuffix(after, "\n"))
		}
	}
	return rest
}

// Wait returns when a line has all of the texts; its error has the log.
func (l *Log) Wait(ctx context.Context, texts ...string) error {
	if err := l.state.Wait(ctx, func() bool { return l.count(texts) > 0 }); err != nil {
		return fmt.Errorf("no line of the log has %q: %w:\n%s", texts, err, l)
	}
	return nil
}

// String returns the whole log.
func (l *Log) String() (text string) {
	l.state.Look(func() { text = l.text.String() })
	return text
}
