package configselector_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

// hedged is a route with hedge_on_per_try_timeout, and next to no wait for retries.
func hedged(max int) *xdsresource.Route {
	return retried(xdsresource.RetryPolicy{MaxAttempts: max, PerTryTimeout: time.Second, Hedges: true})
}

// TestHedgingUnderLoad: each RPC ends once, with the reply to its own request or an error, while attempts
// fail, hang and are cancelled at the same time.
func TestHedgingUnderLoad(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		route := hedged(5)
		route.Retry.PerTryTimeout = time.Millisecond
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{route}, handle: func(n int, s grpc.ServerStream) error {
			md, _ := metadata.FromIncomingContext(s.Context())
			last := slices.Equal(md["grpc-previous-rpc-attempts"], []string{"4"})
			switch {
			case n%5 == 0 && !last:
				return status.Error(codes.Unavailable, "not here")
			case n%5 == 1 && !last:
				<-s.Context().Done()
				return s.Context().Err()
			}
			return echo(s)
		}})
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				request := fmt.Sprint("request ", i, strings.Repeat(" with some text", i))
				if i%7 == 0 || len(request) >= 480 { // The latter may hang: they are sent once.
					time.AfterFunc(time.Duration(i)*time.Millisecond/7, cancel)
				}
				r := w.makeRPC(ctx, k, "/s/m", []string{request}, grpc.MaxRetryRPCBufferSize(500))
				fits := len(request) < 480
				switch code := status.Code(r.err); {
				case code == codes.OK && r.replies[0] != request:
					t.Errorf("RPC %d got %q", i, r.replies)
				case code != codes.OK && i%7 != 0 && fits:
					t.Errorf("RPC %d: %v", i, r.err)
				case len(r.finished) != 1:
					t.Errorf("RPC %d finished %d times", i, len(r.finished))
				}
			})
		}
		all.Wait()
	})
}
