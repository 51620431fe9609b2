package resolver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

// runnerScript is a dnsSource that testdata/runner.txt leads, and the Runner that follows it.
type runnerScript struct {
	dns    *dnsSource
	mu     sync.Mutex
	events []string
}

// TestRunnerScript runs the cases of testdata/runner.txt, which describes its steps.
func TestRunnerScript(t *testing.T) {
	golden.Scripts(t, "testdata/runner.txt", 12, func(t testing.TB) func(string) string {
		s := &runnerScript{dns: &dnsSource{channelResolver: &channelResolver{channel: new(grpcbridge.Channel)}, version: 7}}
		return func(step string) string {
			what, text, _ := strings.Cut(step, " ")
			d, err := time.ParseDuration(text + "0s")
			xdstest.NoError(t, err)
			switch what {
			case "unary", "stream":
				go s.rpc(t.Context(), what, d)
			case "stop":
				began := time.Now()
				s.dns.stop()
				s.add("stopped after ", time.Since(began))
			case "over":
				s.dns.handOverTo(s)
			case "sleep":
				time.Sleep(d)
			}
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			defer func() { s.events = nil }()
			slices.Sort(s.events)
			return strings.Join(s.events, "  ")
		}
	})
}

func (s *runnerScript) add(event ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprint(event...))
}

// rpc makes an RPC that takes as long as given, if DNS leads to its server.
func (s *runnerScript) rpc(ctx context.Context, kind string, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	byDNS := func(ctx context.Context) {
		c := decision.FromContext(ctx)
		s.add(kind, fmt.Sprintf(" by DNS, version %d, %s, cluster %q", c.Version, c.Method, c.Cluster))
		time.Sleep(d)
	}
	finish := []grpc.CallOption{grpc.OnFinish(func(err error) { s.add(kind, " finished: ", status.Code(err)) })}
	var err error
	if kind == "unary" {
		err = s.dns.Unary(ctx, "/s/m", nil, nil, nil, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			byDNS(ctx)
			return nil
		}, finish)
	} else {
		_, err = s.dns.Stream(ctx, nil, nil, "/s/m", func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
			byDNS(ctx)
			return nil, nil
		}, finish)
	}
	s.add(kind, ": ", status.Code(err))
}

// Unary implements grpcbridge.Runner.
func (s *runnerScript) Unary(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, []grpc.CallOption) error {
	s.add("unary by xDS")
	return nil
}

// Stream implements grpcbridge.Runner.
func (s *runnerScript) Stream(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, grpc.Streamer, []grpc.CallOption) (grpc.ClientStream, error) {
	s.add("stream by xDS")
	return nil, nil
}
