// Package switchover replaces a policy by one of another kind without failing RPCs: the old one
// serves until the new one can.
//
// It balances nothing itself. Its parent decides which kind of policy a configuration needs, and whether the old one may
// serve meanwhile.
package switchover

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/tree"
)

// Policy runs the child for the latest configuration, and until that can serve also the child
// before it.
type Policy[C any, K comparable] struct {
	kind    func(C) K
	overlap func(C) bool
	build   func(c C, changed func()) tree.Configured[C]
	changed func()

	serving *child[C, K]
	next    *child[C, K] // nil unless a child gets ready to serve
}

type child[C any, K comparable] struct {
	kind   K
	policy tree.Configured[C]
}

// New returns a Policy that needs an Update before anything else is called. Configurations of the same kind go to the same child. overlap
// says whether a child of another kind may serve until the one for a configuration can.
func New[C any, K comparable](kind func(C) K, overlap func(C) bool, build func(c C, changed func()) tree.Configured[C], changed func()) *Policy[C, K] {
	return &Policy[C, K]{kind: kind, overlap: overlap, build: build, changed: changed}
}

// Update sets the configuration.
func (p *Policy[C, K]) Update(config C) {
	kind := p.kind(config)
	switch {
	case p.serving == nil:
		p.serving = p.create(kind, config)
	case p.next != nil && p.next.kind == kind:
		p.next.policy.Update(config)
	case p.serving.kind == kind:
		p.dropNext()
		p.serving.policy.Update(config)
	default:
		p.dropNext()
		p.next = p.create(kind, config)
	}
	if p.next == nil || p.overlap(config) {
		p.settle()
	} else {
		p.Finish()
	}
}

func (p *Policy[C, K]) create(kind K, config C) *child[C, K] {
	c := &child[C, K]{kind: kind}
	c.policy = p.build(config, func() { p.childChanged(c) })
	c.policy.Update(config)
	return c
}

func (p *Policy[C, K]) dropNext() {
	if p.next != nil {
		p.next.policy.Close()
		p.next = nil
	}
}

func (p *Policy[C, K]) childChanged(c *child[C, K]) {
	before := p.serving
	p.settle()
	if c == p.serving || before != p.serving {
		p.changed()
	}
}

// settle replaces serving by next if next can serve or serving cannot.
func (p *Policy[C, K]) settle() {
	if p.next == nil {
		return
	}
	switch p.next.policy.State().ConnectivityState {
	case connectivity.Ready, connectivity.Idle:
	default:
		if p.serving.policy.State().ConnectivityState == connectivity.Ready {
			return
		}
	}
	p.Finish()
}

// Finish, while Switching, replaces the child that serves for an older configuration, whether or not the new child
// can serve yet.
func (p *Policy[C, K]) Finish() {
	before := p.serving
	p.serving, p.next = p.next, nil
	before.policy.Close()
}

// Switching reports whether a child serves that is not that of the last configuration.
func (p *Policy[C, K]) Switching() bool { return p.next != nil }

// Serving returns the child that serves.
func (p *Policy[C, K]) Serving() tree.Configured[C] { return p.serving.policy }

func (p *Policy[C, K]) State() balancer.State { return p.serving.policy.State() }

func (p *Policy[C, K]) ExitIdle() {
	p.serving.policy.ExitIdle()
	if p.next != nil {
		p.next.policy.ExitIdle()
	}
}

func (p *Policy[C, K]) Close() {
	p.dropNext()
	p.serving.policy.Close()
}
