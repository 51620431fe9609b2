package cluster

import (
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/clustertls"
	"github.com/dynxds/dynxds/balancer/internal/switchover"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Secured serves one cluster over connections that are secured as its Cluster asks (gRFC A29),
// and made through proxies if it asks for that (gRFC A86).
//
// When that changes, another Policy with connections of its own takes over. The one before
// serves until the new one can, so that no RPC fails, but not for longer than connections
// linger; and not at all if its connections have only the channel's credentials, since the
// Cluster asks for more.
type Secured struct {
	env     *tree.Env
	name    string
	changed func()

	policies *switchover.Policy[*Config, clustertls.Key]
	// cluster is the last one, and key how its connections are made on the channel.
	cluster *xdsresource.Cluster
	key     clustertls.Key
	// deadline runs while the Policy of another key serves. nil: it does not.
	deadline *time.Timer
}

// NewSecured returns the policy of the named cluster, whose RPCs wait until Update.
func NewSecured(env *tree.Env, name string, changed func()) *Secured {
	s := &Secured{env: env, name: name, changed: changed}
	s.policies = switchover.New(func(*Config) clustertls.Key { return s.key }, s.build, s.policyChanged)
	s.policies.Update(new(Config))
	return s
}

// securedPolicy holds the credentials of its connections.
type securedPolicy struct {
	*Policy
	release func() // nil: they have the credentials of the channel
}

func (p securedPolicy) Close() {
	p.Policy.Close()
	if p.release != nil {
		p.release()
	}
}

func (s *Secured) build(_ *Config, changed func()) tree.Configured[*Config] {
	if s.key == (clustertls.Key{}) {
		return securedPolicy{Policy: New(s.env, s.name, changed)}
	}
	env := *s.env
	bundle, release := s.env.TLS.Acquire(s.name, s.cluster)
	env.Bundle = bundle
	return securedPolicy{New(&env, s.name, changed), release}
}

// Update takes over what is now known of the cluster.
func (s *Secured) Update(c *Config) {
	before := s.key
	if c.Cluster != nil {
		s.cluster, s.key = c.Cluster, s.env.TLS.Key(s.name, c.Cluster)
	}
	s.policies.Update(c)
	serves := c.Err == nil && c.Cluster != nil && c.Endpoints != nil
	if !serves || !before.Secure() && s.key.Secure() {
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

func (s *Secured) State() balancer.State { return s.policies.State() }

func (s *Secured) ExitIdle() { s.policies.ExitIdle() }

func (s *Secured) Close() {
	s.stopDeadline()
	s.policies.Close()
}
