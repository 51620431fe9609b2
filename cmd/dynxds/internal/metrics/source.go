package metrics

import (
	"sync"
	"time"
)

// source is how far the documents are known and served.
type source struct {
	held      func() int
	goneSince func() time.Time

	mu sync.Mutex
	// unserved is when documents were seen that are not served yet, heldSince when some of them were
	// seen to be held back; zero: there are none.
	unserved, heldSince time.Time
	// faults are those for which nothing is served of what was seen last.
	faults int
}

// Seen notes that the source has documents that differ from what is served.
func (p *Plane) Seen() {
	s := &p.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unserved.IsZero() {
		s.unserved = time.Now()
	}
}

// Published notes that all documents that were seen are served, but for those that are held back.
func (p *Plane) Published(took time.Duration, documents int) {
	p.build.Observe(took.Seconds())
	p.documents.Set(float64(documents))
	s := &p.source
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unserved, s.faults = time.Time{}, 0
}

// Refused notes that nothing of what was seen is served, because of faults.
func (p *Plane) Refused(faults int) {
	p.source.mu.Lock()
	defer p.source.mu.Unlock()
	p.source.faults = faults
}

func (s *source) countFaults() float64 {
	held := s.held()
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.faults + held)
}

func (s *source) lag() float64 {
	held := s.held()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case held == 0:
		s.heldSince = time.Time{}
	case s.heldSince.IsZero():
		s.heldSince = time.Now()
	}
	return max(age(s.unserved), age(s.heldSince))
}

func (s *source) gone() float64 { return age(s.goneSince()) }

// age returns how long ago a time is, in seconds, 0 if it is zero.
func age(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return time.Since(t).Seconds()
}
