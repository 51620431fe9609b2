package controlplane

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
)

// Await waits until ok has returned true for each present stream, or until the context ends, and
// returns the number of streams for which it has not. Streams that have ended, or begin later, do
// not count.
//
// ok is called for every stream at first, and then for a stream after each of its requests. It is
// called without locks, by several goroutines concurrently, which include the readers of requests,
// and these wait for it.
func (s *Server) Await(ctx context.Context, ok func(ClientStatus) bool) (left int) {
	w := &waiting{ok: ok, done: make(chan struct{}), left: map[*stream]struct{}{}}
	s.mu.Lock()
	for _, st := range s.streams {
		w.left[st] = struct{}{}
	}
	present := slices.Collect(maps.Keys(w.left))
	s.waits.Store(w, nil)
	s.mu.Unlock()
	defer s.waits.Delete(w)

	for _, st := range present {
		w.check(st)
	}
	if len(present) > 0 {
		select {
		case <-w.done:
		case <-ctx.Done():
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.left)
}

// waiting is one call of Await.
type waiting struct {
	ok func(ClientStatus) bool
	// done is closed when left is empty.
	done chan struct{}

	mu   sync.Mutex
	left map[*stream]struct{}
}

// check calls ok for a stream that is left.
func (w *waiting) check(st *stream) {
	w.mu.Lock()
	_, waited := w.left[st]
	w.mu.Unlock()
	if waited && w.ok(st.status(math.MaxInt)) {
		w.drop(st)
	}
}

// drop stops waiting for a stream.
func (w *waiting) drop(st *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, waited := w.left[st]; !waited {
		return
	}
	delete(w.left, st)
	if len(w.left) == 0 {
		close(w.done)
	}
}

// eachWait calls f with the calls of Await in progress.
func (s *stream) eachWait(f func(*waiting)) {
	s.waits.Range(func(w, _ any) bool {
		f(w.(*waiting))
		return true
	})
}
