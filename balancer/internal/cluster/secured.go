package cluster

import (
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/switchover"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Secured serves one cluster over connections that are secured as its Cluster asks (gRFC A29).
//
// When that changes, another Policy with connections of its own takes over. The one before
// serves until the new one can, so that no RPC fails, but not for longer than connections
// linger; and not at all if its connections have only the channel's credentials, since the
// Cluster asks for more.
type Secured struct {
	env     *tree.Env
	name    string
	changed func()

	policies *switchover.Policy[Config, xdsresource.SecurityKey]
	// security is that of the last Cluster, and key what it is on the channel.
	security *xdsresource.Security
	key      xdsresource.SecurityKey
	// deadline runs while the Policy of another key serves. nil: it does not.
	deadline *time.Timer
}

// NewSecured returns the policy of the named cluster, whose RPCs wait until Update.
func NewSecured(env *tree.Env, name string, changed func()) *Secured {
	s := &Secured{env: env, name: name, changed: changed}
	s.policies = switchover.New(func(Config) xdsresource.SecurityKey { return s.key }, s.build, s.policyChanged)
	s.policies.Update(Config{})
	return s
}

// securedPolicy holds the credentials of its connections.
type securedPolicy struct {
	*Policy
	release func() // nil: they have the credentials of the channel
}

// Close implements tree.Policy.
func (p securedPolicy) Close() {
	p.Policy.Close()
	if p.release != nil {
		p.release()
	}
}

func (s *Secured) build(_ Config, changed func()) tree.Configured[Config] {
	if s.key == (xdsresource.SecurityKey{}) {
		return securedPolicy{Policy: New(s.env, s.name, changed)}
	}
	env := *s.env
	bundle, release := s.env.TLS.Acquire(s.name, s.security)
	env.Bundle = bundle
	return securedPolicy{New(&env, s.name, changed), release}
}

// Update takes over what is now known of the cluster.
func (s *Secured) Update(c Config) {
	before := s.key
	if c.Cluster != nil {
		s.security, s.key = c.Cluster.Security, s.env.TLS.Key(s.name, c.Cluster.Security)
	}
	s.policies.Update(c)
	serves := c.Err == nil && c.Cluster != nil && c.Endpoints != nil
	if !serves || before == (xdsresource.SecurityKey{}) {
		s.policies.Finish()
	}
	s.setDeadline()
}

func (s *Secured) policyChanged() {
	s.setDeadline()
	s.changed()
}

// setDeadline has the deadline run while it is due.
func (s *Secured) setDeadline() {
	switch {
	case !s.policies.Switching():
		s.stopDeadline()
	case s.deadline == nil:
		var timer *time.Timer
		timer = time.AfterFunc(s.env.Conns.Linger(), func() {
			s.env.Loop.Post(func() {
				if s.deadline == timer {
					s.policies.Finish()
					s.policyChanged()
				}
			})
		})
		s.deadline = timer
	}
}

func (s *Secured) stopDeadline() {
	if s.deadline != nil {
		s.deadline.Stop()
		s.deadline = nil
	}
}

// State implements tree.Policy.
func (s *Secured) State() balancer.State { return s.policies.State() }

// ExitIdle implements tree.Policy.
func (s *Secured) ExitIdle() { s.policies.ExitIdle() }

// Close implements tree.Policy.
func (s *Secured) Close() {
	s.stopDeadline()
	s.policies.Close()
}
