package cluster

import (
	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/switchover"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/clustertls"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Secured serves one cluster over connections that are secured as its Cluster asks (gRFC A29),
// and made through proxies if it asks for that (gRFC A86).
//
// When that changes, another Policy with connections of its own takes over. If the Cluster gets stricter, no
// RPC goes over the old connections any more, and streams that are open end with these, after the time for
// which connections linger. Otherwise the Policy before serves until the new one can, so that no RPC waits, but
// not for longer than connections linger:
//
//	the Cluster accepted servers "a" and "b", now only "a": RPCs wait for new connections
//	the Cluster accepted servers "a", now "a" and "b": RPCs go over the old connections until the new ones are ready
//	the Cluster sends another server name that is not verified: likewise
type Secured struct {
	env     *tree.Env
	name    string
	changed func()

	policies *switchover.Policy[*Config, clustertls.Key]
	// cluster is the last one, and key how its connections are made on the channel.
	cluster *xdsresource.Cluster
	key     clustertls.Key
	// overlap says that the Policy of the previous key may serve until the Policy of this key can.
	overlap bool
	// deadline runs while the Policy of the previous key serves. Otherwise it is nil.
	deadline *tree.Timer
}

// NewSecured returns the policy of the named cluster, whose RPCs wait until Update.
func NewSecured(env *tree.Env, name string, changed func()) *Secured {
	s := &Secured{env: env, name: name, changed: changed}
	s.policies = switchover.New(func(*Config) clustertls.Key { return s.key }, func(*Config) bool { return s.overlap }, s.build, s.policyChanged)
	s.policies.Update(new(Config))
	return s
}

// securedPolicy is a Policy with connections of its own.
type securedPolicy struct {
	*Policy
	secured  *Secured
	security *xdsresource.Security // of its connections
	bundle   *clustertls.Bundle    // nil: they have the credentials of the channel
	release  func()
}

func (p securedPolicy) Close() {
	if p.secured.stricterThan(p.security) {
		p.bundle.Outdate()
	}
	p.Policy.Close()
	p.release()
}

func (s *Secured) build(_ *Config, changed func()) tree.Configured[*Config] {
	p := securedPolicy{secured: s, security: s.security()}
	env := *s.env
	p.bundle, p.release = s.env.TLS.Acquire(s.name, s.cluster)
	env.Bundle = p.bundle
	p.Policy = New(&env, s.name, changed)
	return p
}

// security returns what the Cluster asks for, as far as it is known.
func (s *Secured) security() *xdsresource.Security {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.Security
}

// stricterThan reports whether the Cluster asks for more than connections of another version may have.
func (s *Secured) stricterThan(before *xdsresource.Security) bool {
	return s.env.TLS.Stricter(before, s.security())
}

// Update takes over what is now known of the cluster.
func (s *Secured) Update(c *Config) {
	before := s.security()
	if c.Cluster != nil {
		s.cluster, s.key = c.Cluster, s.env.TLS.Key(s.name, c.Cluster)
	}
	s.overlap = c.Err == nil && c.Cluster != nil && c.Endpoints != nil && !s.stricterThan(before)
	s.policies.Update(c)
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
		s.deadline = s.env.Loop.After(s.env.Pool.Linger(), func() {
			s.policies.Finish()
			s.policyChanged()
		})
	}
}

func (s *Secured) stopDeadline() {
	s.deadline.Stop()
	s.deadline = nil
}

func (s *Secured) State() balancer.State { return s.policies.State() }

func (s *Secured) ExitIdle() { s.policies.ExitIdle() }

func (s *Secured) Close() {
	s.stopDeadline()
	s.policies.Close()
}
