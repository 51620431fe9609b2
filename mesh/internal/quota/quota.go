// Package quota limits what all peers of the process hold together, with a share for each, so that no peer takes what others need.
// The limits themselves are in internal/bounds; docs/reference/bounds.md says to users what each costs, who pays when it is reached, and
// how it recovers.
package quota

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Quota limits an amount that all peers of the process hold together, such as streams, names or
// bytes. Each peer takes from it through a [Share] of its own. It is safe for concurrent use.
//
// A peer holds at most half of the limit, and less as the limit is approached: at most as much as is free, so that there is
// room for one more peer whatever the present ones take. With a limit of 100,
//
//	one peer that takes all it gets has 50, and 50 are free
//	two such peers have 33 each, and 33 are free
//	three have 25 each, and 25 are free
type Quota struct {
	what string
	// share is what one peer may hold of limit, a half.
	limit, share int64
	used         atomic.Int64
}

// New returns a Quota over what, a plural for errors such as "streams" or "bytes of nodes". All peers
// together hold at most limit.
func New(what string, limit int64) *Quota {
	return &Quota{what: what, limit: limit, share: (limit + 1) / 2}
}

// Used returns the amount that all peers hold.
func (q *Quota) Used() int64 { return q.used.Load() }

// Limit returns the limit for all peers together.
func (q *Quota) Limit() int64 { return q.limit }

// Share returns the share of one more peer, which holds nothing yet.
func (q *Quota) Share() *Share { return &Share{quota: q} }

// Share is the amount that one peer holds of a Quota. It is safe for concurrent use.
type Share struct {
	quota *Quota
	held  atomic.Int64
}

// Held returns the amount that the peer holds.
func (s *Share) Held() int64 { return s.held.Load() }

// Take adds n to the amount that the peer holds. If the peer's share or the limit of the process does not
// allow that, Take changes nothing and returns an error that says which.
func (s *Share) Take(n int64) error {
	s.Add(n)
	if err := s.check(s.held.Load(), s.quota.used.Load()); err != nil {
		s.Give(n)
		return err
	}
	return nil
}

// Check returns the error of Take, and takes nothing.
func (s *Share) Check(n int64) error { return s.check(s.held.Load()+n, s.quota.used.Load()+n) }

// Add adds n to the amount that the peer holds, also beyond the limits: for an amount that exists already and
// was another peer's, or was checked before.
func (s *Share) Add(n int64) {
	s.held.Add(n)
	s.quota.used.Add(n)
}

// check returns an error if the peer may not hold as much while all together hold used.
func (s *Share) check(held, used int64) error {
	q := s.quota
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

// Give returns n of the amount that the peer holds.
func (s *Share) Give(n int64) {
	s.held.Add(-n)
	s.quota.used.Add(-n)
}

// Shares are the shares of a Quota by peer, of one unit after the other. A peer that holds nothing is forgotten. It is safe for concurrent
// use.
type Shares[Peer comparable] struct {
	quota *Quota

	mu sync.Mutex
	of map[Peer]*Share
}

// NewShares returns the Shares of a new Quota; see [New].
func NewShares[Peer comparable](what string, limit int64) *Shares[Peer] {
	return &Shares[Peer]{quota: New(what, limit), of: map[Peer]*Share{}}
}

// Used returns the amount that all peers hold.
func (s *Shares[Peer]) Used() int64 { return s.quota.Used() }

// Take adds one to what a peer holds, or returns the error of [Share.Take].
func (s *Shares[Peer]) Take(peer Peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	share := s.of[peer]
	if share == nil {
		share = s.quota.Share()
	}
	if err := share.Take(1); err != nil {
		return err
	}
	s.of[peer] = share
	return nil
}

// Give returns one that a peer took.
func (s *Shares[Peer]) Give(peer Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	share := s.of[peer]
	if share.Give(1); share.Held() == 0 {
		delete(s.of, peer)
	}
}
