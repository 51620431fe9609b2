package metrics

import (
	"sync"
	"time"
)

// source is how far the documents are known and served.
type source struct {
	goneSince func() time.Time

	mu sync.Mutex
	// unserved is when documents were seen that are not served yet, zero if there are none.
	unserved time.Time
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

// Published notes that all documents that were seen are served.
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
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.faults)
}

func (s *source) lag() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return age(s.unserved)
}

func (s *source) gone() float64 { return age(s.goneSince()) }

// age returns how long ago a time is, in seconds, 0 if it is zero.
func age(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return time.Since(t).Seconds()
}
