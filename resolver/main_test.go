package resolver

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/grpclog"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/dns"
)

func TestMain(m *testing.M) {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(logged, io.Discard, io.Discard))
	grpcresolver.Register(names)
	dns.SetMinResolutionInterval(0)
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

// count returns how many lines have all of the texts.
func (b *logBuffer) count(texts ...string) int {
	b.mu.Lock()
	lines := strings.Split(b.text.String(), "\n")
	b.mu.Unlock()
	n := 0
lines:
	for _, line := range lines {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue lines
			}
		}
		n++
	}
	return n
}
