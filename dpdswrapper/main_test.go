package dpdswrapper_test

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/grpclog"
)

func TestMain(m *testing.M) {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, logged, io.Discard))
	goleak.VerifyTestMain(m)
}

// logged is the warnings that the process has logged.
var logged = new(logBuffer)

type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// count returns how many lines have all of the texts.
func (b *logBuffer) count(texts ...string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
lines:
	for line := range strings.Lines(b.text.String()) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue lines
			}
		}
		n++
	}
	return n
}
