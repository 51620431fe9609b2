package xdstest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// maxRecorded bounds what a Recorder keeps by default; soak tests run for long.
const maxRecorded = 100_000

// Recorder keeps the requests that clients sent and counts their streams.
type Recorder struct {
	mu sync.Mutex
	// limit bounds requests.
	limit    int
	requests []Request
	// dropped counts the oldest requests, which were dropped.
	dropped int
	// next is the position at which Wait continues, counted from the first request.
	next int
	// attempts counts all streams, open the present ones.
	attempts, open int
	// news is closed and replaced after every change.
	news chan struct{}
}

func newRecorder() *Recorder { return &Recorder{limit: maxRecorded, news: make(chan struct{})} }

// update changes the record and wakes calls of await.
func (r *Recorder) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.news)
	r.news = make(chan struct{})
}

// began counts a stream, which is served unless it was refused.
func (r *Recorder) began(served bool) {
	r.update(func() {
		r.attempts++
		if served {
			r.open++
		}
	})
}

func (r *Recorder) ended() { r.update(func() { r.open-- }) }

func (r *Recorder) add(req Request) {
	r.update(func() {
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
func (r *Recorder) Keep(n int) { r.update(func() { r.limit = n }) }

// Requests returns all requests so far, or at least the newest 50,000.
func (r *Recorder) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Skip makes the next Wait ignore all requests so far.
func (r *Recorder) Skip() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = r.dropped + len(r.requests)
}

// await returns when done, called under mu, returns true, or with the context's error.
func (r *Recorder) await(ctx context.Context, done func() bool) error {
	for {
		r.mu.Lock()
		ok, news := done(), r.news
		r.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Wait returns the next request that matches. It looks at each request once: it continues after the one
// that the last successful Wait returned. The error lists the last requests.
func (r *Recorder) Wait(ctx context.Context, match Match) (found Request, err error) {
	err = r.await(ctx, func() bool {
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
	if err := r.await(ctx, func() bool { open = r.open; return open == n }); err != nil {
		return fmt.Errorf("%d streams are open, want %d: %w", open, n, err)
	}
	return nil
}

// WaitAttempts returns when at least n ADS streams have begun, refused ones included.
func (r *Recorder) WaitAttempts(ctx context.Context, n int) error {
	var attempts int
	if err := r.await(ctx, func() bool { attempts = r.attempts; return attempts >= n }); err != nil {
		return fmt.Errorf("%d streams have begun, want %d: %w", attempts, n, err)
	}
	return nil
}

// Attempts returns the number of ADS streams so far, refused ones included.
func (r *Recorder) Attempts() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.attempts
}

func (r *Recorder) tail(n int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.requests) == 0 {
		return ": none"
	}
	var b strings.Builder
	for _, req := range r.requests[max(0, len(r.requests)-n):] {
		b.WriteString("\n\t" + req.String())
	}
	return b.String()
}
