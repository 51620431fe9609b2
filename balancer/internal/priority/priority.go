// Package priority chooses the first policy that works from a list in order of preference (gRFC
// A56).
//
// It balances nothing itself and does not know what its children are. It creates a child when
// those before it do not work, gives it time to connect, fails over to the next one, returns
// when it recovers, and keeps children for a while that it no longer needs. Its configuration
// comes from the cluster policy, and its picker is that of the chosen child.
package priority

import (
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/tree"
)

const (
	// FailoverTimeout is how long a child may take to connect before the next one is tried as
	// well (gRFC A56).
	FailoverTimeout = 10 * time.Second
	// RetentionTime is how long a child that is not needed keeps its connections (gRFC A56).
	// One that is removed from the configuration is closed at once (gRFC A115).
	RetentionTime = 15 * time.Minute
)

// Entry is one priority.
type Entry[C any] struct {
	// Name identifies the child, which keeps its connections when its name moves to another
	// priority. Names are unique within a configuration.
	Name   string
	Config C
}

// Policy chooses among children configured with a C.
type Policy[C any] struct {
	env     *tree.Env
	build   func(name string, changed func()) tree.Configured[C]
	changed func()

	entries []Entry[C]
	// index has the places of the entries by name. order has the children of the entries, nil
	// for those not needed yet.
	index map[string]int
	order []*child[C]
	// current is the child whose state is the Policy's, or nil.
	current *child[C]
}

// New returns a Policy without priorities, which needs an Update before anything else is called. build creates the
// child of a name.
func New[C any](env *tree.Env, build func(name string, changed func()) tree.Configured[C], changed func()) *Policy[C] {
	return &Policy[C]{env: env, build: build, changed: changed}
}

// Update sets the priorities, at least one, in order of preference.
func (p *Policy[C]) Update(entries []Entry[C]) {
	before := p.order
	p.entries, p.order = entries, make([]*child[C], len(entries))
	p.index = make(map[string]int, len(entries))
	for i, e := range entries {
		p.index[e.Name] = i
	}
	for _, c := range before {
		if c == nil {
			continue
		}
		i, remains := p.index[c.name]
		if !remains {
			p.destroy(c) // Before children are created, which may reuse the connections.
			continue
		}
		p.order[i] = c
		c.policy.Update(entries[i].Config)
		p.observe(c)
	}
	p.choose()
}

// Refresh replaces the configuration of some priorities.
func (p *Policy[C]) Refresh(changed []Entry[C]) {
	for _, e := range changed {
		i, ok := p.index[e.Name]
		if !ok {
			continue
		}
		p.entries[i] = e
		if c := p.order[i]; c != nil {
			c.policy.Update(e.Config)
			p.observe(c)
		}
	}
	p.choose()
}

func (p *Policy[C]) State() balancer.State { return p.current.policy.State() }

// ExitIdle implements tree.Policy. Deactivated children stay as they are.
func (p *Policy[C]) ExitIdle() {
	for _, c := range p.order {
		if c != nil && !c.retention.Pending() {
			c.policy.ExitIdle()
		}
	}
}

func (p *Policy[C]) Close() {
	for _, c := range p.order {
		if c != nil {
			p.destroy(c)
		}
	}
	p.entries, p.index, p.order, p.current = nil, nil, nil, nil
}

// childChanged passes a change of a child on only if another child is chosen, or if the child
// is the chosen one.
func (p *Policy[C]) childChanged(c *child[C]) {
	p.observe(c)
	p.reconsider(c)
}

func (p *Policy[C]) reconsider(c *child[C]) {
	before := p.current
	p.choose()
	if p.current != before || p.current == c {
		p.changed()
	}
}

// choose is gRFC A56, "Algorithm for Choosing a Priority". It is idempotent.
func (p *Policy[C]) choose() {
	for i, c := range p.order {
		if c == nil {
			c = p.create(i)
		}
		c.retention.Stop()
		if c.usable() {
			p.current = c
			p.deactivateFrom(i + 1)
			return
		}
		if c.failover.Pending() {
			p.current = c
			return
		}
	}
	p.current = p.lastResort()
}

// lastResort is the first child that is still connecting, or else the last one.
func (p *Policy[C]) lastResort() *child[C] {
	var c *child[C]
	for _, c = range p.order {
		if c.connecting() {
			return c
		}
	}
	return c
}
