package router

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
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
				MaxAttempts: 9, Codes: xdsresource.SetOf(codes.Unavailable), BaseBackoff: 100 * ms, MaxBackoff: 250 * ms,
			}}
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
				if !r.decideRetry(trailer) {
					t.Fatalf("retry %d does not happen", i)
				}
				if got := r.delay; got < step.from || got > step.to {
					t.Errorf("retry %d after %v, want %v to %v", i, got, step.from, step.to)
				}
			}
			if r.decideRetry(nil) {
				t.Error("a tenth attempt")
			}
			r.steps = 80 // beyond the longest time.Duration
			if got := r.backoff(); got < 200*ms || got > 300*ms {
				t.Errorf("after many retries the backoff is %v", got)
			}
		})
	}
}

// TestRateLimitedBackoff: Envoy, RetryPolicy.RateLimitedRetryBackOff: "Headers are tried in order,
// and matched case insensitive. The first header to be parsed successfully is used. If no headers
// match the default exponential back-off is used instead"; "If a reset header contains an
// interval longer than this then it will be discarded and the next header will be tried";
// "If the header appears multiple times only the first value is used".
func TestRateLimitedBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const s = time.Second
		unix := func(in time.Duration) string { return strconv.FormatInt(time.Now().Add(in).Unix(), 10) }
		for name, test := range map[string]struct {
			trailer  []string
			from, to time.Duration
		}{
			"no header":              {nil, 80 * time.Millisecond, 120 * time.Millisecond},
			"seconds":                {[]string{"retry-after", "4"}, 4 * s, 6 * s},
			"at once":                {[]string{"retry-after", "0"}, 0, 0},
			"a time":                 {[]string{"x-reset", unix(10 * s)}, 10 * s, 15 * s},
			"the first one wins":     {[]string{"retry-after", "4", "x-reset", unix(20 * s)}, 4 * s, 6 * s},
			"not a number":           {[]string{"retry-after", "soon", "x-reset", unix(10 * s)}, 10 * s, 15 * s},
			"negative":               {[]string{"retry-after", "-1"}, 80 * time.Millisecond, 120 * time.Millisecond},
			"longer than the limit":  {[]string{"retry-after", "31", "x-reset", unix(10 * s)}, 10 * s, 15 * s},
			"as long as the limit":   {[]string{"retry-after", "30"}, 30 * s, 45 * s},
			"far beyond the limit":   {[]string{"retry-after", "9223372036854775807"}, 80 * time.Millisecond, 120 * time.Millisecond},
			"a time in the past":     {[]string{"x-reset", unix(-s)}, 80 * time.Millisecond, 120 * time.Millisecond},
			"now":                    {[]string{"x-reset", unix(0)}, 0, 0},
			"a time at the limit":    {[]string{"x-reset", unix(30 * s)}, 30 * s, 45 * s},
			"a time too far":         {[]string{"x-reset", unix(31 * s)}, 80 * time.Millisecond, 120 * time.Millisecond},
			"the first of several":   {[]string{"retry-after", "4", "retry-after", "9"}, 4 * s, 6 * s},
			"pushback is for gRPC's": {[]string{"retry-after", "4", retryPushback, "7"}, 7 * time.Millisecond, 7 * time.Millisecond},
		} {
			r := retrier{max: 2, policy: &xdsresource.RetryPolicy{
				Codes: xdsresource.SetOf(codes.Unavailable), BaseBackoff: s / 10, MaxBackoff: s / 10,
				ResetHeaders: []xdsresource.ResetHeader{{Name: "retry-after"}, {Name: "x-reset", Timestamp: true}}, MaxReset: 30 * s,
			}}
			if !r.decideRetry(metadata.Pairs(test.trailer...)) || r.delay < test.from || r.delay > test.to {
				t.Errorf("%s: retry after %v, want %v to %v", name, r.delay, test.from, test.to)
			}
		}
	})
}

func TestShadow(t *testing.T) {
	t.Parallel()
	for authority, want := range map[string]string{
		"host": "host-shadow", "host:80": "host-shadow:80", "[::1]": "[::1]-shadow", "[::1]:80": "[::1]-shadow:80", "": "", ":80": ":80",
	} {
		xdstest.Equal(t, fmt.Sprintf("shadow of %q", authority), want, shadow(authority))
	}
}

// A mirror that has ended is not referred to by its channel or by the context of the RPC, which last longer.
func TestAMirrorThatHasEnded(t *testing.T) {
	t.Parallel()
	ch := new(Channel)
	ctx, cancel := context.WithCancel(t.Context())
	over, end := context.WithCancel(t.Context())
	m := &mirror{ch: ch, attempt: attempt{decision: &decision.Decision{Context: ctx}}, cancel: cancel, queue: make(chan grpcbridge.Encoded)}
	m.ended = context.AfterFunc(over, m.closeSend)
	ch.mirrors.Add(1)
	m.end()
	end()
	if ctx.Err() == nil || m.ended() || ch.mirrors.Load() != 0 {
		t.Errorf("its context is %v, %d mirrors run, or the context of the RPC knows it", ctx.Err(), ch.mirrors.Load())
	}
}
