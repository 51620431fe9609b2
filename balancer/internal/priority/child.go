package priority

import (
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/tree"
)

// child is a child policy and its state in terms of gRFC A56.
type child[C any] struct {
	name   string
	policy tree.Configured[C]

	// state is the child's connectivity when it was last observed, and since when it began.
	state connectivity.State
	since time.Time
	// settled is what the child was before it was CONNECTING.
	settled settled
	// failover is pending while the child has time to connect, since started.
	failover tree.Timer
	started  time.Time
	// retention is pending while the child is deactivated, since deactivated.
	retention   tree.Timer
	deactivated time.Time
}

type settled int

const (
	never settled = iota
	working
	failed
)

func (c *child[C]) usable() bool {
	return c.state == connectivity.Ready || c.state == connectivity.Idle
}

func (c *child[C]) connecting() bool { return c.state == connectivity.Connecting }

// create makes the child of the i-th entry, and starts its time to connect.
func (p *Policy[C]) create(i int) *child[C] {
	e := p.entries[i]
	c := &child[C]{name: e.Name, state: connectivity.Connecting, since: time.Now()}
	p.order[i] = c
	c.policy = p.build(e.Name, func() { p.childChanged(c) })
	p.startFailover(c)
	c.policy.Update(e.Config)
	p.observe(c)
	return c
}

// observe updates the child's state (gRFC A56, "Child Connectivity State Tracking").
func (p *Policy[C]) observe(c *child[C]) {
	before := c.state
	if c.state = c.policy.State().ConnectivityState; c.state != before {
		c.since = time.Now()
	}
	switch {
	case c.usable():
		c.settled = working
		c.failover.Stop()
	case !c.connecting():
		c.settled = failed
		c.failover.Stop()
	case before != connectivity.Connecting && c.settled == working:
		p.startFailover(c)
	}
}

// startFailover gives a child time to connect.
func (p *Policy[C]) startFailover(c *child[C]) {
	c.started = time.Now()
	p.env.Loop.After(&c.failover, FailoverTimeout, func() { p.reconsider(c) })
}

// deactivateFrom has the children of the entries from the first on destroyed after RetentionTime, unless they are needed again.
func (p *Policy[C]) deactivateFrom(first int) {
	for _, c := range p.order[first:] {
		if c != nil && !c.retention.Pending() {
			c.deactivated = time.Now()
			p.env.Loop.After(&c.retention, RetentionTime, func() { p.destroy(c) })
		}
	}
}

// destroy closes a child. If it is the current one, choose or Close follows.
func (p *Policy[C]) destroy(c *child[C]) {
	c.failover.Stop()
	c.retention.Stop()
	if i, ok := p.index[c.name]; ok {
		p.order[i] = nil
	}
	c.policy.Close()
}
