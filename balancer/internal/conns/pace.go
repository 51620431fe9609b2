package conns

import (
	"github.com/dynxds/dynxds/internal/bounds"
)

// starts bounds the connections that are made at a time. 100,000 handshakes at once would have the CPU, and the
// goroutine on which gRPC reports the states of a channel's connections, until the last of them is done, while RPCs
// wait that could use the first. Clusters take turns. It is guarded by Pool.mu.
type starts struct {
	// underWay is the number of connections that are being made, of which each counts for bounds.ConnectingSlice at most: servers
	// may not answer.
	underWay int
	// waiting has the others, by cluster, and turns the clusters.
	waiting map[string][]*Conn
	turns   []string
}

// mayStartLocked reports whether c may connect now. Otherwise it will when it is its turn.
func (p *Pool) mayStartLocked(c *Conn) bool {
	l, s := c.link, &p.starts
	switch {
	case l.queued:
		return false
	case l.start.Pending():
		return true
	case s.underWay < bounds.Connecting:
		p.startLocked(l)
		return true
	}
	cluster := c.registry.Cluster
	queue := s.waiting[cluster]
	if len(queue) == 0 {
		s.turns = append(s.turns, cluster)
	}
	s.waiting[cluster] = append(queue, c)
	l.queued = true
	return false
}

func (p *Pool) startLocked(l *link) {
	p.starts.underWay++
	l.start.Start(bounds.ConnectingSlice, p.locked, p.nextLocked)
}

// settledLocked notes that a connection is made, or has failed.
func (p *Pool) settledLocked(l *link) {
	if l.start.Pending() {
		l.start.Stop()
		p.nextLocked()
	}
}

// nextLocked has those connections begin whose turn it is after a connection that is settled, or no longer waited for.
func (p *Pool) nextLocked() {
	s := &p.starts
	s.underWay--
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
			p.afterLocked(c.link.sc.Connect)
		}
	}
}
