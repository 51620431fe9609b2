package transport

import (
	"sync"
	"time"

	"github.com/dynxds/dynxds/internal/bounds"
)

// Work limits the share of time in which the client works on the responses of a server, see
// bounds.ResponseShare. Responses that wait stay with the server, by HTTP/2's flow control. The zero value is ready
// for use, also by several streams at once.
//
// Time is what is counted, not responses or bytes: it is what an attack costs, and thousands of small changes are
// no reason to wait. It is not the time of a CPU, which cannot be had of a goroutine: where the process has to wait for
// a CPU, the client works less.
//
//	work     10 s, as the burst allows
//	work     0.1 s, rest 0.3 s
//	work     0.1 s, rest 0.3 s
//	nothing  for 40 s
//	work     10 s
type Work struct {
	mu sync.Mutex
	// used is the work that is not made up for, at the given time.
	used time.Duration
	at   time.Time
}

// Done counts the work since it began, and returns how long to rest.
func (w *Work) Done(began time.Time) (rest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.used = max(0, w.used-now.Sub(w.at)/bounds.ResponseShare) + now.Sub(began)
	w.at = now
	w.used = min(w.used, bounds.ResponseBurst+bounds.ResponseRest/bounds.ResponseShare)
	return max(0, (w.used-bounds.ResponseBurst)*bounds.ResponseShare)
}
