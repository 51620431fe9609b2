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
	// dropped counts the oldest requests that were thrown away.
	dropped int
	// next is where Wait goes on, counted from the very first request.
	next int
	// attempts counts the streams that were begun, open those that are served now.
	attempts, open int
	// news is closed and replaced whenever any of these changed.
	news chan struct{}
}

func newRecorder() *Recorder { return &Recorder{limit: maxRecorded, news: make(chan struct{})} }

// update changes the record and wakes all who await.
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

// Keep bounds how many requests are remembered for Requests and Wait, of 2 at least: the
// newest n/2 of them are always there. It is for tests that measure memory.
func (r *Recorder) Keep(n int) { r.update(func() { r.limit = n }) }

// Requests returns all requests so far (of very many, the newest 50,000 at
// least).
func (r *Recorder) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Skip makes the next Wait begin with what comes from now on.
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

// Wait returns the next request that matches. It looks at each request once: it
// goes on after the one that the last successful Wait returned, and those it
// passes over are not seen again. The error says which requests came.
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
		return Request{}, fmt.Errorf("no matching request came: %w; the last ones were%s", err, r.tail(20))
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

// WaitAttempts returns when at least n ADS streams were begun since the server
// was made, refused ones included.
func (r *Recorder) WaitAttempts(ctx context.Context, n int) error {
	var attempts int
	if err := r.await(ctx, func() bool { attempts = r.attempts; return attempts >= n }); err != nil {
		return fmt.Errorf("%d streams were begun, want %d: %w", attempts, n, err)
	}
	return nil
}

// Attempts returns how many ADS streams were begun since the server was made,
// refused ones included.
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
