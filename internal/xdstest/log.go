package xdstest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
)

// Log is a log that tests read; it is an io.Writer for grpclog and the like. The zero Log
// is empty. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
	// news is closed by the next write; nil if no call of Wait is in progress.
	news chan struct{}
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.news != nil {
		close(l.news)
		l.news = nil
	}
	return l.text.Write(p)
}

// Count returns the number of lines that have all of the texts.
func (l *Log) Count(texts ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count(texts)
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
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if _, after, ok := strings.Cut(line, text); ok {
			rest = append(rest, strings.TrimSuffix(after, "\n"))
		}
	}
	return rest
}

// Wait returns when a line has all of the texts; its error has the log.
func (l *Log) Wait(ctx context.Context, texts ...string) error {
	for {
		l.mu.Lock()
		if l.news == nil {
			l.news = make(chan struct{})
		}
		n, news := l.count(texts), l.news
		l.mu.Unlock()
		if n > 0 {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("no line of the log has %q: %w:\n%s", texts, ctx.Err(), l)
		}
	}
}

// String returns the whole log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
