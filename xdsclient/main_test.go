package xdsclient

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
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(logged, io.Discard, io.Discard))
	goleak.VerifyTestMain(m)
}

// logged is what the process has logged.
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

// with returns what comes behind the text in each line that has it.
func (b *logBuffer) with(text string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []string
	for line := range strings.Lines(b.text.String()) {
		if _, rest, ok := strings.Cut(line, text); ok {
			found = append(found, strings.TrimSuffix(rest, "\n"))
		}
	}
	return found
}
