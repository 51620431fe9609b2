// Package unifiedmatcher is the unified matcher of xDS (gRFC A106): a tree of conditions on an RPC, whose leaves are actions.
//
// It does not know what the actions are, nor CEL, whose expressions are compiled by a package that programs import for that.
package unifiedmatcher

import (
	"context"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/matching"
)

// Tree is a valid Matcher. It is immutable.
type Tree[A any] struct {
	rules []rule[A] // of a matcher_list
	// maps are the entries of a matcher_tree by the value of a header.
	header          string
	exact, prefixes map[string]*onMatch[A]
	lengths         []int // of prefixes, the longest first
	otherwise       *onMatch[A]
}

type rule[A any] struct {
	predicate predicate
	then      *onMatch[A]
}

// onMatch is a tree below, or an action.
type onMatch[A any] struct {
	tree   *Tree[A]
	action A
}

// Match returns the action for an RPC with the outgoing context ctx. ok is false if the tree has none for it.
func (t *Tree[A]) Match(ctx context.Context, rpc *httpfilter.RPC) (action A, ok bool) {
	seen := matching.RPC{Method: rpc.Method, Authority: rpc.Authority, Context: ctx}
	h := seen.Headers()
	return t.match(ctx, rpc, &h)
}

// match looks for an action. Headers are as routes see them (gRFC A28). A tree below that has none is as if it had not been reached.
func (t *Tree[A]) match(ctx context.Context, rpc *httpfilter.RPC, h *matching.Headers) (action A, ok bool) {
	for i := range t.rules {
		if t.rules[i].predicate.holds(ctx, rpc, h) {
			if action, ok = t.rules[i].then.match(ctx, rpc, h); ok {
				return action, true
			}
		}
	}
	if t.header != "" {
		if action, ok = t.lookUp(ctx, rpc, h); ok {
			return action, true
		}
	}
	return t.otherwise.match(ctx, rpc, h)
}

func (t *Tree[A]) lookUp(ctx context.Context, rpc *httpfilter.RPC, h *matching.Headers) (action A, ok bool) {
	value, present := h.Get(t.header)
	if !present {
		return action, false
	}
	if action, ok = t.exact[value].match(ctx, rpc, h); ok {
		return action, true
	}
	for _, n := range t.lengths {
		if n > len(value) {
			continue
		}
		if action, ok = t.prefixes[value[:n]].match(ctx, rpc, h); ok {
			return action, true
		}
	}
	return action, false
}

func (o *onMatch[A]) match(ctx context.Context, rpc *httpfilter.RPC, h *matching.Headers) (action A, ok bool) {
	switch {
	case o == nil:
		return action, false
	case o.tree != nil:
		return o.tree.match(ctx, rpc, h)
	default:
		return o.action, true
	}
}

// predicate is a condition. The zero value is not valid.
type predicate struct {
	kind     predicateKind
	header   string // for onHeader
	value    matching.String
	custom   Predicate // for onCustom
	operands []predicate
}

type predicateKind int

const (
	onHeader predicateKind = iota
	onCustom
	allOf
	anyOf
	noneOf
)

// Predicate is a condition on an RPC with the outgoing context ctx. It is called concurrently.
type Predicate func(ctx context.Context, rpc *httpfilter.RPC) bool

func (p *predicate) holds(ctx context.Context, rpc *httpfilter.RPC, h *matching.Headers) bool {
	switch p.kind {
	case onHeader:
		value, present := h.Get(p.header)
		return present && p.value.Matches(value)
	case onCustom:
		return p.custom(ctx, rpc)
	}
	// allOf ends with the first operand that does not hold, the others with the first that does.
	for i := range p.operands {
		if p.operands[i].holds(ctx, rpc, h) != (p.kind == allOf) {
			return p.kind == anyOf
		}
	}
	return p.kind != anyOf
}
