// Package switchover replaces a policy by one of another kind without failing
// the RPCs in between: the old one serves until the new one can.
//
// It balances nothing itself. What kind of policy a configuration asks for is
// its parent's to say.
package switchover

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/tree"
)

// Child is a policy configured with a C.
type Child[C any] interface {
	tree.Policy
	Update(C)
}

// Policy runs the child that the latest configuration asks for, and until that
// can take RPCs the one before.
type Policy[C any, K comparable] struct {
	kind    func(C) K
	build   func(c C, changed func()) Child[C]
	changed func()

	serving, coming *child[C, K] // coming is nil but while a child gets ready
}

type child[C any, K comparable] struct {
	kind   K
	policy Child[C]
}

// New returns a Policy without child; it must have an Update before State.
// Configurations of the same kind go to the same child.
func New[C any, K comparable](kind func(C) K, build func(c C, changed func()) Child[C], changed func()) *Policy[C, K] {
	return &Policy[C, K]{kind: kind, build: build, changed: changed}
}

// Update takes over a configuration.
func (p *Policy[C, K]) Update(config C) {
	kind := p.kind(config)
	switch {
	case p.serving == nil:
		p.serving = p.create(kind, config)
	case p.coming != nil && p.coming.kind == kind:
		p.coming.policy.Update(config)
	case p.serving.kind == kind:
		p.dropComing()
		p.serving.policy.Update(config)
	default:
		p.dropComing()
		p.coming = p.create(kind, config)
	}
	p.settle()
}

func (p *Policy[C, K]) create(kind K, config C) *child[C, K] {
	c := &child[C, K]{kind: kind}
	c.policy = p.build(config, func() { p.childChanged(c) })
	c.policy.Update(config)
	return c
}

func (p *Policy[C, K]) dropComing() {
	if p.coming != nil {
		p.coming.policy.Close()
		p.coming = nil
	}
}

func (p *Policy[C, K]) childChanged(c *child[C, K]) {
	before := p.serving
	p.settle()
	if c == p.serving || before != p.serving {
		p.changed()
	}
}

// settle puts coming in the place of serving if it takes RPCs, or if serving
// takes none.
func (p *Policy[C, K]) settle() {
	if p.coming == nil {
		return
	}
	switch p.coming.policy.State().ConnectivityState {
	case connectivity.Ready, connectivity.Idle:
	default:
		if p.serving.policy.State().ConnectivityState == connectivity.Ready {
			return
		}
	}
	p.Finish()
}

// Finish puts the child of the last configuration in the place of one that still serves
// for it, whether it takes RPCs or not.
func (p *Policy[C, K]) Finish() {
	if p.coming == nil {
		return
	}
	before := p.serving
	p.serving, p.coming = p.coming, nil
	before.policy.Close()
}

// Switching reports whether a child serves that is not that of the last configuration.
func (p *Policy[C, K]) Switching() bool { return p.coming != nil }

// State implements tree.Policy.
func (p *Policy[C, K]) State() balancer.State { return p.serving.policy.State() }

// ExitIdle implements tree.Policy.
func (p *Policy[C, K]) ExitIdle() {
	p.serving.policy.ExitIdle()
	if p.coming != nil {
		p.coming.policy.ExitIdle()
	}
}

// Close implements tree.Policy.
func (p *Policy[C, K]) Close() {
	p.dropComing()
	if p.serving != nil {
		p.serving.policy.Close()
	}
}
