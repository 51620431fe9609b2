package conns

import (
	"time"

	"github.com/dynxds/dynxds/internal/bounds"
)

// starts bounds the connections that are made at a time. 100,000 handshakes at once would have the CPU, and the
// goroutine on which gRPC reports the states of a channel's connections, until the last of them is done, while RPCs
// wait that could use the first. Clusters take turns. It is guarded by Pool.mu.
type starts struct {
	// period counts the slices of time, from 1. Those that began in earlier ones are not waited for: servers may not
	// answer.
	period uint64
	// underWay is the number of connections that began in this period and are being made.
	underWay int
	// waiting has the others, by cluster, and turns the clusters.
	waiting map[string][]*Conn
	turns   []string
	// slice ends the period while connections wait, and is otherwise nil.
	slice *time.Timer
}

// mayStartLocked reports whether c may connect now. Otherwise it will when it is its turn.
func (p *Pool) mayStartLocked(c *Conn) bool {
	l, s := c.link, &p.starts
	switch {
	case l.queued:
		return false
	case l.begun != 0:
		return true
	case s.underWay < bounds.Connecting:
		p.startLocked(l)
		return true
	}
	if s.waiting == nil {
		s.waiting = make(map[string][]*Conn)
	}
	queue := s.waiting[l.cluster]
	if len(queue) == 0 {
		s.turns = append(s.turns, l.cluster)
	}
	s.waiting[l.cluster] = append(queue, c)
	l.queued = true
	if s.slice == nil {
		s.slice = time.AfterFunc(bounds.ConnectingSlice, p.nextPeriod)
	}
	return false
}

func (p *Pool) startLocked(l *link) {
	p.starts.underWay++
	l.begun = p.starts.period
}

// settled notes that a connection is made, or has failed, and has the next ones begin.
func (p *Pool) settled(l *link) {
	p.mu.Lock()
	if l.begun == p.starts.period {
		p.starts.underWay--
	}
	l.begun = 0
	due := p.dueLocked()
	p.mu.Unlock()
	connect(due)
}

func (p *Pool) nextPeriod() {
	p.mu.Lock()
	s := &p.starts
	s.period++
	s.underWay, s.slice = 0, nil
	due := p.dueLocked()
	if len(s.turns) > 0 {
		s.slice = time.AfterFunc(bounds.ConnectingSlice, p.nextPeriod)
	}
	p.mu.Unlock()
	connect(due)
}

// dueLocked takes those whose turn it is.
func (p *Pool) dueLocked() (due []*Conn) {
	s := &p.starts
	for s.underWay < bounds.Connecting && len(s.turns) > 0 {
		cluster := s.turns[0]
		s.turns = s.turns[1:]
		c, rest := s.waiting[cluster][0], s.waiting[cluster][1:]
		if len(rest) > 0 {
			s.waiting[cluster] = rest
			s.turns = append(s.turns, cluster)
		} else {
			delete(s.waiting, cluster)
		}
		c.link.queued = false
		if c.link.user == c {
			p.startLocked(c.link)
			due = append(due, c)
		}
	}
	return due
}

func connect(due []*Conn) {
	for _, c := range due {
		c.link.sc.Connect()
	}
}
