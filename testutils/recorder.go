package testutils

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// maxRecorded bounds what a recorder keeps by default; soak tests run for long.
const maxRecorded = 100_000

// recorder keeps the requests that came in and lets one wait for them.
type recorder struct {
	// limit bounds requests.
	limit int

	mu       sync.Mutex
	requests []Request
	// dropped counts the oldest requests that were thrown away.
	dropped int
	// next is where Wait goes on, counted from the very first request.
	next int
	// news is closed and replaced whenever something was recorded.
	news chan struct{}
}

func newRecorder(limit int) *recorder { return &recorder{limit: limit, news: make(chan struct{})} }

func (r *recorder) add(req Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.requests) == r.limit {
		drop := r.limit / 2
		r.requests = slices.Delete(r.requests, 0, drop)
		r.dropped += drop
		r.next = max(r.next, r.dropped)
	}
	r.requests = append(r.requests, req)
	close(r.news)
	r.news = make(chan struct{})
}

func (r *recorder) all() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

func (r *recorder) skip() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = r.dropped + len(r.requests)
}

// take looks at the requests from next on. It returns the first that matches,
// or what to wait for.
func (r *recorder) take(match Match) (req Request, found bool, news <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := r.next - r.dropped; i < len(r.requests); i++ {
		if match(r.requests[i]) {
			r.next = r.dropped + i + 1
			return r.requests[i], true, nil
		}
	}
	return Request{}, false, r.news
}

func (r *recorder) wait(ctx context.Context, match Match) (Request, error) {
	for {
		req, found, news := r.take(match)
		if found {
			return req, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return Request{}, fmt.Errorf("no matching request came: %w; the last ones were%s", ctx.Err(), r.tail(20))
		}
	}
}

func (r *recorder) tail(n int) string {
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
