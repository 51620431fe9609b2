// Package quota limits what all peers of the process hold together, with a share for each, so that no peer takes what others need.
// The limits themselves are in internal/bounds; docs/reference/bounds.md says to users what each costs, who pays when it is reached, and
// how it recovers.
package quota

import (
	"fmt"
	"sync"
)

// Quota limits an amount that all peers of the process hold together, such as streams, names or
// bytes. It is safe for concurrent use. A peer that holds nothing is forgotten.
//
// A peer holds at most half of the limit, and less as the limit is approached: at most as much as is free, so that there is
// room for one more peer whatever the present ones take. With a limit of 100,
//
//	one peer that takes all it gets has 50, and 50 are free
//	two such peers have 33 each, and 33 are free
//	three have 25 each, and 25 are free
type Quota[Peer comparable] struct {
	what string
	// share is what one peer may hold of limit, a half.
	limit, share int64

	mu   sync.Mutex
	used int64
	held map[Peer]int64
}

// New returns a Quota over what, a plural for errors such as "streams" or "bytes of nodes". All peers
// together hold at most limit.
func New[Peer comparable](what string, limit int64) *Quota[Peer] {
	return &Quota[Peer]{what: what, limit: limit, share: (limit + 1) / 2, held: map[Peer]int64{}}
}

// Used returns the amount that all peers hold.
func (q *Quota[Peer]) Used() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used
}

// Limit returns the limit for all peers together.
func (q *Quota[Peer]) Limit() int64 { return q.limit }

// Take adds n to the amount that a peer holds. If the peer's share or the limit of the process does not
// allow that, Take changes nothing and returns an error that says which.
func (q *Quota[Peer]) Take(peer Peer, n int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.check(q.held[peer]+n, q.used+n)
	if err == nil {
		q.add(peer, n)
	}
	return err
}

// Check returns the error of Take, and takes nothing.
func (q *Quota[Peer]) Check(peer Peer, n int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.check(q.held[peer]+n, q.used+n)
}

// Add adds n to the amount that a peer holds, also beyond the limits: for an amount that exists already and
// was another peer's, or was checked before.
func (q *Quota[Peer]) Add(peer Peer, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(peer, n)
}

// Give returns n of the amount that a peer holds.
func (q *Quota[Peer]) Give(peer Peer, n int64) { q.Add(peer, -n) }

// add is Add. The caller holds q.mu.
func (q *Quota[Peer]) add(peer Peer, n int64) {
	q.used += n
	if q.held[peer] += n; q.held[peer] == 0 {
		delete(q.held, peer)
	}
}

// check returns an error if a peer may not hold as much while all together hold used.
func (q *Quota[Peer]) check(held, used int64) error {
	switch free := q.limit - used; {
	case free < 0:
		return fmt.Errorf("too many %s: all peers together may have %d", q.what, q.limit)
	case held > q.share:
		return fmt.Errorf("too many %s: one peer may have %d", q.what, q.share)
	case float64(held)*float64(q.limit-q.share) > float64(free)*float64(q.share): // the halves of an odd limit differ
		return fmt.Errorf("too many %s for one peer: only %d of %d are left for all", q.what, free, q.limit)
	}
	return nil
}
