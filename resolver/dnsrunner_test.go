package resolver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// scripted is a Runner that counts its RPCs.
type scripted struct{ unary, streams int }

func (r *scripted) Unary(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, []grpc.CallOption) error {
	r.unary++
	return nil
}

func (r *scripted) Stream(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, grpc.Streamer, []grpc.CallOption) (grpc.ClientStream, error) {
	r.streams++
	return nil, nil
}

// unaryRPC runs an RPC that takes as long as given.
func unaryRPC(ctx context.Context, p *dnsRunner, d time.Duration, opts ...grpc.CallOption) error {
	return p.Unary(ctx, "/s/m", nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		time.Sleep(d)
		return nil
	}, opts)
}

func streamingRPC(ctx context.Context, p *dnsRunner) error {
	_, err := p.Stream(ctx, nil, nil, "/s/m", func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		return nil, nil
	}, nil)
	return err
}

func TestDNSRunnerGivesEachRPCADecisionForNoCluster(t *testing.T) {
	t.Parallel()
	cc := new(grpc.ClientConn)
	p := &dnsRunner{channel: cc, version: 7}
	check := func(ctx context.Context) {
		d := decision.FromContext(ctx)
		if d == nil || d.Channel != cc || d.Version != 7 || d.Method != "/s/m" || d.Cluster != "" {
			t.Errorf("decision %+v", d)
		}
	}
	_ = p.Unary(t.Context(), "/s/m", nil, nil, cc, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		check(ctx)
		return nil
	}, nil)
	_, _ = p.Stream(t.Context(), nil, cc, "/s/m", func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
		check(ctx)
		return nil, nil
	}, nil)
}

func TestDNSRunnerStopWaitsForTheRPCsInside(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rpcs []time.Duration
		want time.Duration
	}{
		"none":                         {nil, 0},
		"short ones":                   {[]time.Duration{10 * time.Millisecond, 30 * time.Millisecond}, 30 * time.Millisecond},
		"one that outlasts the wait":   {[]time.Duration{10 * time.Millisecond, time.Hour}, patience},
		"one that ends with the other": {[]time.Duration{time.Millisecond, time.Millisecond}, time.Millisecond},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := new(dnsRunner)
				for _, d := range test.rpcs {
					go func() { _ = unaryRPC(t.Context(), p, d) }()
				}
				synctest.Wait()
				began := time.Now()
				p.stop()
				if got := time.Since(began); got != test.want {
					t.Errorf("stop took %v, want %v", got, test.want)
				}
				time.Sleep(time.Hour) // until all have ended
			})
		})
	}
}

func TestDNSRunnerHandsRPCsToItsSuccessor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, next := new(dnsRunner), new(scripted)
		p.stop()
		done := make(chan error, 2)
		go func() { done <- unaryRPC(t.Context(), p, 0); done <- streamingRPC(t.Context(), p) }()
		synctest.Wait()
		if next.unary+len(done) > 0 {
			t.Error("an RPC ran between two Runners")
		}
		p.handOverTo(next)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if err := unaryRPC(t.Context(), p, 0); err != nil || next.unary != 2 || next.streams != 1 {
			t.Errorf("the successor ran %d unary and %d streaming RPCs (%v), want 2 and 1", next.unary, next.streams, err)
		}
	})
}

func TestDNSRunnerEndsRPCsWhoseContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := new(dnsRunner)
		p.stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var finished error
		err := unaryRPC(ctx, p, 0, grpc.OnFinish(func(err error) { finished = err }))
		if status.Code(err) != codes.DeadlineExceeded || finished == nil {
			t.Errorf("error %v, OnFinish got %v", err, finished)
		}
		if err := streamingRPC(ctx, p); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("streaming: %v", err)
		}
	})
}
