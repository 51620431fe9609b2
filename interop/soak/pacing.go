package soak

import (
	"sync"
	"time"
)

const (
	// briskest and slowest bound the time between two RPCs of a kind.
	briskest = 40 * time.Millisecond
	slowest  = time.Minute
	// calming is how much of the time since the last event an RPC waits for the next: there are
	// many RPCs after an event, and few in the hours between.
	calming = 0.15
)

// pacing says when the next RPC is due.
type pacing struct {
	mu sync.Mutex
	// stirred is when something happened last, and news is closed and replaced then.
	stirred time.Time
	news    chan struct{}
}

func newPacing() *pacing { return &pacing{stirred: time.Now(), news: make(chan struct{})} }

// stir says that something has happened, so that RPCs are worth their while.
func (p *pacing) stir() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stirred = time.Now()
	close(p.news)
	p.news = make(chan struct{})
}

// rest waits between two RPCs of a kind.
func (p *pacing) rest(done <-chan struct{}) {
	p.mu.Lock()
	calm, news := time.Since(p.stirred), p.news
	p.mu.Unlock()
	time.Sleep(briskest)
	select {
	case <-time.After(min(slowest, time.Duration(calming*float64(calm))) - briskest):
	case <-news:
	case <-done:
	}
}
