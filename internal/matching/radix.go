package matching

import (
	"bytes"
	"strings"
)

// radix is a compressed tree from prefixes to lists of routes. Finding all prefixes of a
// path costs the length of the path, however many prefixes there are.
type radix struct {
	root *radixNode
	fold bool // the prefixes are in lower case, and so paths are compared
}

type radixNode struct {
	label    string // what the node adds to the prefix of its parent
	head     int32  // the first route of the list for this prefix, or None
	firsts   []byte // the first byte of the label of each of the children
	children []*radixNode
}

// slot returns the head of the list for prefix. It is valid until the next call.
func (t *radix) slot(prefix string) *int32 {
	if t.root == nil {
		t.root = &radixNode{head: None}
	}
	n := t.root
	for prefix != "" {
		i := bytes.IndexByte(n.firsts, prefix[0])
		if i < 0 {
			leaf := &radixNode{label: prefix, head: None}
			n.firsts = append(n.firsts, prefix[0])
			n.children = append(n.children, leaf)
			return &leaf.head
		}
		shared := commonPrefix(n.children[i].label, prefix)
		if shared < len(n.children[i].label) {
			n.children[i] = n.children[i].split(shared)
		}
		n = n.children[i]
		prefix = prefix[shared:]
	}
	return &n.head
}

// split returns a node for the first at bytes of the label of n, with n as its child.
func (n *radixNode) split(at int) *radixNode {
	parent := &radixNode{
		label:    n.label[:at],
		head:     None,
		firsts:   []byte{n.label[at]},
		children: []*radixNode{n},
	}
	n.label = n.label[at:]
	return parent
}

func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// collect adds the lists of all prefixes of path. It reports false if c is full.
func (t *radix) collect(path string, c *candidates) bool {
	for n := t.root; n != nil; {
		if !c.push(n.head) {
			return false
		}
		if path == "" {
			return true
		}
		first := path[0]
		if t.fold {
			first = lower(first)
		}
		i := bytes.IndexByte(n.firsts, first)
		if i < 0 {
			return true
		}
		n = n.children[i]
		if !t.hasPrefix(path, n.label) {
			return true
		}
		path = path[len(n.label):]
	}
	return true
}

func (t *radix) hasPrefix(path, label string) bool {
	if t.fold {
		return hasPrefixFold(path, label)
	}
	return strings.HasPrefix(path, label)
}
