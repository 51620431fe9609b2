// Package unifiedmatcher is the unified matcher of xDS (gRFC A106): a tree of conditions on an RPC, whose leaves are actions.
//
// It does not know what the actions are, nor CEL, whose expressions are compiled by a package that programs import for that.
package unifiedmatcher

import (
	"context"
	"strings"

	"google.golang.org/grpc/metadata"

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
	return t.match(&call{ctx: ctx, rpc: rpc})
}

// call is the RPC at hand. It stays on the stack.
type call struct {
	ctx      context.Context
	rpc      *httpfilter.RPC
	asked    bool        // metadata have been read
	metadata metadata.MD // a copy
}

// header returns the value of a header as routes see it (gRFC A28), several values joined with ",".
func (c *call) header(name string) (value string, present bool) {
	switch name {
	case ":path":
		return c.rpc.Method, true
	case ":method":
		return "POST", true
	case ":authority", "host":
		return c.rpc.Authority, c.rpc.Authority != ""
	case "content-type":
		return "application/grpc", true
	}
	if strings.HasSuffix(name, "-bin") {
		return "", false
	}
	if !c.asked {
		c.metadata, _ = metadata.FromOutgoingContext(c.ctx)
		c.asked = true
	}
	values := c.metadata[name]
	return strings.Join(values, ","), len(values) > 0
}

// match looks for an action. A tree below that has none is as if it had not been reached.
func (t *Tree[A]) match(c *call) (action A, ok bool) {
	for i := range t.rules {
		if t.rules[i].predicate.holds(c) {
			if action, ok = t.rules[i].then.match(c); ok {
				return action, true
			}
		}
	}
	if t.header != "" {
		if action, ok = t.lookUp(c); ok {
			return action, true
		}
	}
	return t.otherwise.match(c)
}

func (t *Tree[A]) lookUp(c *call) (action A, ok bool) {
	value, present := c.header(t.header)
	if !present {
		return action, false
	}
	if action, ok = t.exact[value].match(c); ok {
		return action, true
	}
	for _, n := range t.lengths {
		if n > len(value) {
			continue
		}
		if action, ok = t.prefixes[value[:n]].match(c); ok {
			return action, true
		}
	}
	return action, false
}

func (o *onMatch[A]) match(c *call) (action A, ok bool) {
	switch {
	case o == nil:
		return action, false
	case o.tree != nil:
		return o.tree.match(c)
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

func (p *predicate) holds(c *call) bool {
	switch p.kind {
	case onHeader:
		value, present := c.header(p.header)
		return present && p.value.Matches(value)
	case onCustom:
		return p.custom(c.ctx, c.rpc)
	}
	// allOf ends with the first operand that does not hold, the others with the first that does.
	for i := range p.operands {
		if p.operands[i].holds(c) != (p.kind == allOf) {
			return p.kind == anyOf
		}
	}
	return p.kind != anyOf
}
