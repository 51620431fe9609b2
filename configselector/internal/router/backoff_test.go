package router

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// TestBackoff: gRFC A6, "Exponential Backoff" (doubling up to the maximum,
// jitter of 0.2 either way) and "Pushback" (exactly the delay asked for, and
// after it the backoff from its beginning).
func TestBackoff(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			r := retrier{max: 9, policy: &xdsresource.RetryPolicy{
				MaxAttempts: 9, Codes: xdsresource.NewCodeSet(codes.Unavailable), BaseBackoff: 100 * ms, MaxBackoff: 250 * ms,
			}}
			d := &decision.Decision{Context: t.Context()}
			for i, step := range []struct {
				pushback string
				from, to time.Duration
			}{
				{"", 80 * ms, 120 * ms},
				{"", 160 * ms, 240 * ms},
				{"", 200 * ms, 300 * ms},
				{"", 200 * ms, 300 * ms},
				{"1234", 1234 * ms, 1234 * ms},
				{"", 80 * ms, 120 * ms},
				{"0", 0, 0},
				{"", 80 * ms, 120 * ms},
			} {
				trailer := metadata.MD{}
				if step.pushback != "" {
					trailer.Set(retryPushback, step.pushback)
				}
				if !r.again(d, status.Error(codes.Unavailable, ""), trailer) {
					t.Fatalf("retry %d does not happen", i)
				}
				start := time.Now()
				if err := r.wait(d); err != nil {
					t.Fatal(err)
				}
				if got := time.Since(start); got < step.from || got > step.to {
					t.Errorf("retry %d after %v, want %v to %v", i, got, step.from, step.to)
				}
			}
			if r.again(d, status.Error(codes.Unavailable, ""), nil) {
				t.Error("a tenth attempt")
			}
		})
	}
}

func TestShadow(t *testing.T) {
	t.Parallel()
	for authority, want := range map[string]string{
		"host": "host-shadow", "host:80": "host-shadow:80", "[::1]": "[::1]-shadow", "[::1]:80": "[::1]-shadow:80", "": "", ":80": ":80",
	} {
		if got := shadow(authority); got != want {
			t.Errorf("shadow of %q is %q, want %q", authority, got, want)
		}
	}
}
