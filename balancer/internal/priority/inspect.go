package priority

import (
	"fmt"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/inspect"
)

// Described is one priority, for diagnostics.
type Described[C any] struct {
	Entry Entry[C]
	Use   inspect.Use
	// Policy is nil if the priority was not needed yet; State is then IDLE.
	Policy tree.Configured[C]
	State  connectivity.State
}

// Words are the texts that users of the package have for a priority.
type Words[C any] struct {
	// Label names the i-th one, whose child has the given name.
	Label func(i int, name string) string
	// Error returns the last error of the i-th one, which has the given policy, or "".
	Error func(i int, policy tree.Configured[C]) string
}

// Inspect describes the priorities in order of preference. It changes nothing.
func (p *Policy[C]) Inspect(words Words[C]) []Described[C] {
	inUse := -1
	for i, c := range p.order {
		if c != nil && c == p.current {
			inUse = i
		}
	}
	all := make([]Described[C], len(p.order))
	for i, c := range p.order {
		all[i] = Described[C]{Entry: p.entries[i], State: connectivity.Idle, Use: inspect.Use{Status: inspect.StatusNotStarted}}
		d := &all[i]
		if c != nil {
			d.State, d.Policy = c.state, c.policy
			d.Use = c.use(words.Error(i, c.policy))
		}
		if d.Use.InUse = i == inUse; d.Use.InUse {
			d.Use.Why += p.lastResortBecause(c)
		} else {
			d.Use.Why += p.passedOver(i, inUse, words)
		}
	}
	return all
}

// use describes a child without regard to the others.
func (c *child[C]) use(lastError string) inspect.Use {
	u := inspect.Use{Since: c.since, Error: lastError}
	switch c.state {
	case connectivity.Ready:
		u.Status, u.Why = inspect.StatusReady, "ready"
	case connectivity.Idle:
		u.Status, u.Why = inspect.StatusIdle, "idle: the next RPC connects it"
	case connectivity.Connecting:
		u.Status, u.Why = inspect.StatusConnecting, "connecting"
		switch {
		case c.failover != nil:
			u.Until = c.started.Add(FailoverTimeout)
			u.Why += ", failover timer running since " + at(c.started)
		case c.settled == failed:
			u.Why += " again after it failed"
		default:
			u.Why += fmt.Sprintf(", failover timer ran out at %s (%v)", at(c.started.Add(FailoverTimeout)), FailoverTimeout)
		}
	default:
		u.Status, u.Why = inspect.StatusFailed, "failed"
	}
	if u.Status != inspect.StatusReady && lastError != "" {
		u.Why += ": " + lastError
	}
	if c.retention != nil {
		u.Deactivated, u.Until = c.deactivated, c.deactivated.Add(RetentionTime)
	}
	return u
}

// lastResortBecause says why the child in use is, if it does not work.
func (p *Policy[C]) lastResortBecause(c *child[C]) string {
	switch {
	case c.usable() || c.failover != nil:
		return ""
	case len(p.order) == 1:
		return "; there is no other"
	case c.connecting():
		return "; in use because none works and this is the first that is connecting"
	default:
		return "; in use because none works and this is the last"
	}
}

// passedOver says why the i-th child is not in use.
func (p *Policy[C]) passedOver(i, inUse int, words Words[C]) string {
	c := p.order[i]
	switch {
	case inUse < 0:
		return ""
	case c == nil:
		return "not started: " + words.Label(inUse, p.entries[inUse].Name) + " is " + p.order[inUse].use("").Why
	case c.retention != nil:
		return fmt.Sprintf("; deactivated since %s because %s is %s; connected until %s",
			at(c.deactivated), words.Label(inUse, p.entries[inUse].Name), p.order[inUse].use("").Why, at(c.deactivated.Add(RetentionTime)))
	default:
		return "; " + words.Label(inUse, p.entries[inUse].Name) + " is in use"
	}
}

func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }
