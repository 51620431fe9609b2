package metrics

import (
	"sync"
	"time"

	"github.com/dynxds/dynxds/mesh/internal/planestate"
)

// source is how far the documents are known and served.
type source struct {
	state func() planestate.State

	mu sync.Mutex
	// unserved is when documents were seen that are not served yet, zero if there are none.
	unserved time.Time
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
	s.unserved = time.Time{}
}

func (s *source) faults() float64 { return float64(s.state().Faults) }

func (s *source) leftOut() float64 {
	if p := s.state().Published; p != nil {
		return float64(p.LeftOut)
	}
	return 0
}

func (s *source) lag() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return age(s.unserved)
}

func (s *source) gone() float64 { return ageOf(s.state().GoneSince) }

func (s *source) faulty() float64 { return ageOf(s.state().FaultySince) }

func (s *source) waiting() float64 {
	if s.state().Waiting != "" {
		return 1
	}
	return 0
}

// published returns when the last update was, in seconds of Unix time.
func (s *source) published() float64 {
	if p := s.state().Published; p != nil {
		return float64(p.At.UnixMilli()) / 1000
	}
	return 0
}

func ageOf(t *time.Time) float64 {
	if t == nil {
		return 0
	}
	return age(*t)
}

// age returns how long ago a time is, in seconds, 0 if it is zero.
func age(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return time.Since(t).Seconds()
}
