package grpcbridge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

// TestScript has what becomes of RPCs while their channel has no configuration. The file in testdata says what the steps are. Each
// section runs with unary and with streaming RPCs, of which the same comes.
func TestScript(t *testing.T) {
	golden.Scripts(t, "testdata/*.txt", 0, func(t testing.TB) func(string) string {
		unary, streaming := &script{TB: t}, &script{TB: t, streaming: true}
		return func(line string) string {
			if after, ok := strings.CutPrefix(line, "sleep "); ok {
				d, err := time.ParseDuration(after)
				xdstest.NoError(t, err)
				time.Sleep(d) // of the bubble
			}
			said := unary.step(line)
			if other := streaming.step(line); other != said {
				t.Errorf("%s: streaming RPCs: %q, unary ones: %q", line, other, said)
			}
			return said
		}
	})
}

// foreignBuilder is another package's resolver for our scheme.
type foreignBuilder struct{ grpcresolver.Builder }

func (foreignBuilder) Scheme() string { return scheme }

func (foreignBuilder) Build(_ grpcresolver.Target, cc grpcresolver.ClientConn, _ grpcresolver.BuildOptions) (grpcresolver.Resolver, error) {
	cc.ReportError(errors.New("foreign resolver at work"))
	return &foreignResolver{}, nil
}

type foreignResolver struct{ grpcresolver.Resolver }

func (*foreignResolver) Close() {}

// script is a channel, whose resolvers do what the steps say.
type script struct {
	testing.TB
	streaming bool
	builder   *fakeBuilder
	cc        *grpc.ClientConn
	resolver  *fakeResolver // the last one
	runners   []*fakeRunner
	cancels   map[string]context.CancelFunc

	mu   sync.Mutex
	said []string // by RPCs, since the last step
}

func (s *script) step(line string) string {
	words := strings.Fields(line)
	switch rest := words[1:]; words[0] {
	case "dial":
		s.dial(rest)
	case "rpc":
		s.rpc(rest[0], rest[1:])
	case "cancel":
		s.cancels[rest[0]]()
	case "publish":
		s.runners = append(s.runners, new(fakeRunner))
		s.resolver.Publish(s.runners[len(s.runners)-1])
	case "fail":
		s.resolver.Fail(errors.New(strings.Join(rest, " ")))
	case "close":
		s.cc.Close()
	case "sleep": // by both
	default:
		s.Fatalf("what is %q?", line)
	}
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.said)
	for len(s.builder.built) > 0 {
		s.resolver = <-s.builder.built
		s.said = append(s.said, "a resolver begins")
	}
	if !grpcbridge.Known(s.cc) {
		s.said = append(s.said, "no Channel")
	}
	said := strings.Join(s.said, "; ")
	s.said = nil
	return said
}

func (s *script) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

func (s *script) dial(words []string) {
	s.builder, s.cancels = newFakeBuilder(), map[string]context.CancelFunc{}
	builder := grpcresolver.Builder(s.builder)
	opts := []grpc.DialOption{grpc.WithIdleTimeout(0)}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "explicit":
			opts = append(opts, grpcbridge.DialOptions()...)
		case "unreached": // by Install
			s.builder.scheme = fmt.Sprintf("unreached%t", s.streaming)
		case "foreign":
			builder = foreignBuilder{}
		case "ready":
			opts = append(opts, grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
		case "idle":
			d, err := time.ParseDuration(value)
			xdstest.NoError(s, err)
			opts = append(opts, grpc.WithIdleTimeout(d))
		}
	}
	s.cc = dial(s, builder, opts...)
}

// rpc begins an RPC, which says how it ends, and the trace how long it waits for the configuration.
func (s *script) rpc(name string, words []string) {
	ctx, cancel := context.WithCancel(s.Context())
	s.cancels[name] = cancel
	var finished []error
	opts := []grpc.CallOption{grpc.OnFinish(func(err error) { finished = append(finished, err) })}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "ready", "unready":
			opts = append(opts, grpc.WaitForReady(key == "ready"))
		case "canceled":
			cancel()
		case "timeout":
			d, err := time.ParseDuration(value)
			xdstest.NoError(s, err)
			ctx, cancel = context.WithTimeout(ctx, d)
		}
	}
	ctx = rpctrace.With(ctx, &rpctrace.Trace{WaitedForConfig: func(w rpctrace.ConfigWait) {
		xdstest.Equal(s, "target", s.cc.Target(), w.Target)
		s.say("%s waited %v: %v", name, w.Duration, status.Code(w.Err))
	}})
	go func() {
		defer cancel()
		err := call(ctx, s.cc, s.streaming, opts...)
		if len(finished) > 1 || len(finished) == 1 && finished[0] != err {
			s.Errorf("OnFinish got %v, want once %v", finished, err)
		}
		said := fmt.Sprintf("%s ends with %v", name, status.Code(err))
		if err != nil {
			said += ": " + status.Convert(err).Message()
		}
		s.say("%s, OnFinish %d", said, len(finished))
	}()
}
