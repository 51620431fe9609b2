package xdstest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// maxRecorded bounds what a Recorder keeps by default; soak tests run for long.
const maxRecorded = 100_000

// Recorder keeps the requests that clients sent and counts their streams.
type Recorder struct {
	state State
	// limit bounds requests.
	limit    int
	requests []Request
	// dropped counts the oldest requests, which were dropped.
	dropped int
	// next is the position at which Wait continues, counted from the first request.
	next int
	// attempts counts all streams, open the present ones.
	attempts, open int
}

func newRecorder() *Recorder { return &Recorder{limit: maxRecorded} }

// began counts a stream, which is served unless it was refused.
func (r *Recorder) began(served bool) {
	r.state.Change(func() {
		r.attempts++
		if served {
			r.open++
		}
	})
}

func (r *Recorder) ended() { r.state.Change(func() { r.open-- }) }

func (r *Recorder) add(req Request) {
	r.state.Change(func() {
		if len(r.requests) >= r.limit {
			drop := len(r.requests) - r.limit/2
			r.requests = slices.Delete(r.requests, 0, drop)
			r.dropped += drop
			r.next = max(r.next, r.dropped)
		}
		r.requests = append(r.requests, req)
	})
}

// Keep bounds the requests that are kept for Requests and Wait, at least 2: the newest n/2 are always
// kept. It is for tests that measure memory.
func (r *Recorder) Keep(n int) { r.state.Change(func() { r.limit = n }) }

// Requests returns all requests so far, or at least the newest 50,000.
func (r *Recorder) Requests() (all []Request) {
	r.state.locked(func() { all = slices.Clone(r.requests) })
	return all
}

// Skip makes the next Wait ignore all requests so far.
func (r *Recorder) Skip() { r.state.locked(func() { r.next = r.dropped + len(r.requests) }) }

// Wait returns the next request that matches. It looks at each request once: it continues after the one
// that the last successful Wait returned. The error lists the last requests.
func (r *Recorder) Wait(ctx context.Context, match Match) (found Request, err error) {
	err = r.state.wait(ctx, func() bool {
		from := r.next - r.dropped
		i := slices.IndexFunc(r.requests[from:], match)
		if i < 0 {
			return false
		}
		found, r.next = r.requests[from+i], r.next+i+1
		return true
	})
	if err != nil {
		return Request{}, fmt.Errorf("no matching request: %w; the last ones were%s", err, r.tail(20))
	}
	return found, nil
}

// MustWait is Wait that fails the test instead of returning an error.
func (r *Recorder) MustWait(ctx context.Context, t testing.TB, match Match) Request {
	t.Helper()
	req, err := r.Wait(ctx, match)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// WaitOpen returns when exactly n ADS streams are open.
func (r *Recorder) WaitOpen(ctx context.Context, n int) error {
	var open int
	if err := r.state.wait(ctx, func() bool { open = r.open; return open == n }); err != nil {
		return fmt.Errorf("%d streams are open, want %d: %w", open, n, err)
	}
	return nil
}

// WaitAttempts returns when at least n ADS streams have begun, refused ones included.
func (r *Recorder) WaitAttempts(ctx context.Context, n int) error {
	var attempts int
	if err := r.state.wait(ctx, func() bool { attempts = r.attempts; return attempts >= n }); err != nil {
		return fmt.Errorf("%d streams have begun, want %d: %w", attempts, n, err)
	}
	return nil
}

// Attempts returns the number of ADS streams so far, refused ones included.
func (r *Recorder) Attempts() (n int) {
	r.state.locked(func() { n = r.attempts })
	return n
}

func (r *Recorder) tail(n int) string {
	all := r.Requests()
	if len(all) == 0 {
		return ": none"
	}
	var b strings.Builder
	for _, req := range all[max(0, len(all)-n):] {
		b.WriteString("\n\t" + req.String())
	}
	return b.String()
}
