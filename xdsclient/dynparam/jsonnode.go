package dynparam

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// node is one JSON value together with its place in the document. The document is
// walked by hand, as protojson stops at the first mistake. What is wrong is said in
// the words that bootstrap has for it; testdata/constraints.json holds both to that.
type node struct {
	at  *path
	raw json.RawMessage // empty if the key is absent
	to  *collector
}

// object is a JSON object of which only the known fields were kept.
type object struct {
	node
	valid   bool
	members map[string]node
}

// The kinds of value, as faults call them.
const (
	kindNothing = "nothing"
	kindNull    = "null"
	kindString  = "a string"
	kindList    = "a list"
	kindObject  = "an object"
	kindBoolean = "a boolean"
	kindNumber  = "a number"
)

func (n node) kind() string {
	if len(n.raw) == 0 {
		return kindNothing
	}
	switch n.raw[0] {
	case 'n':
		return kindNull
	case '"':
		return kindString
	case '[':
		return kindList
	case '{':
		return kindObject
	case 't', 'f':
		return kindBoolean
	default:
		return kindNumber
	}
}

// absent reports whether the field is not set. In proto JSON null says so as well.
func (n node) absent() bool { return n.kind() == kindNothing || n.kind() == kindNull }

func (n node) fail(format string, args ...any) { n.to.add(n.at, format, args...) }

// is reports whether the value is of the kind; if not, that is a fault.
func (n node) is(kind string) bool {
	if n.kind() == kind {
		return true
	}
	n.fail("expected %s, found %s", kind, n.kind())
	return false
}

func (n node) boolean() bool { return n.is(kindBoolean) && n.raw[0] == 't' }

func (n node) text() string {
	if !n.is(kindString) {
		return ""
	}
	var s string
	_ = json.Unmarshal(n.raw, &s) // Its syntax has been checked.
	return s
}

// uint64 reads an integer as proto JSON has it, in quotes or without. It is nil if
// the field is not set, or is no such integer.
func (n node) uint64() *uint64 {
	if n.absent() {
		return nil
	}
	var wrapper wrapperspb.UInt64Value
	if err := protojson.Unmarshal(n.raw, &wrapper); err != nil {
		n.fail("expected an integer from 0 to 2^64-1, found %s that is none", n.kind())
		return nil
	}
	return &wrapper.Value
}

// object returns the members that are known fields.
func (n node) object(fields ...string) object {
	o := object{node: n, members: make(map[string]node, len(fields))}
	if !n.is(kindObject) {
		return o
	}
	o.valid = true
	for name, raw := range members(n.raw) {
		if !slices.Contains(fields, name) {
			continue
		}
		member := node{at: n.at.field(name), raw: raw, to: n.to}
		if _, twice := o.members[name]; twice {
			member.fail("expected the key once, found it again")
			continue
		}
		o.members[name] = member
	}
	return o
}

// get returns the member, one of those object was called with.
func (o object) get(name string) node {
	if member, ok := o.members[name]; ok {
		return member
	}
	return node{at: o.at.field(name), to: o.to}
}

// getProto returns a field whose name has two spellings.
func (o object) getProto(snake, camel string) node {
	inSnake, inCamel := o.get(snake), o.get(camel)
	if inCamel.absent() {
		return inSnake
	}
	if !inSnake.absent() {
		inCamel.fail("expected the field once, found it as %s as well", snake)
	}
	return inCamel
}

// entries walks an object that stands for a map.
func (n node) entries() iter.Seq2[string, node] {
	return func(yield func(string, node) bool) {
		if !n.is(kindObject) {
			return
		}
		seen := make(map[string]bool)
		for name, raw := range members(n.raw) {
			entry := node{at: n.at.entry(name), raw: raw, to: n.to}
			if seen[name] {
				entry.fail("expected the name once, found it again")
				continue
			}
			seen[name] = true
			if !yield(name, entry) {
				return
			}
		}
	}
}

// nonEmpty walks a list that has to have an element. The problem says what was
// expected, and takes what was found.
func (n node) nonEmpty(problem string) iter.Seq[node] {
	return func(yield func(node) bool) {
		if n.kind() != kindList {
			n.fail(problem, n.kind())
			return
		}
		decoder := json.NewDecoder(bytes.NewReader(n.raw))
		if _, err := decoder.Token(); err != nil {
			return
		}
		if !decoder.More() {
			n.fail(problem, emptyList)
		}
		for i := 0; decoder.More(); i++ {
			var raw json.RawMessage
			if decoder.Decode(&raw) != nil || !yield(node{at: n.at.element(i), raw: raw, to: n.to}) {
				return
			}
		}
	}
}

// members walks the members of an object whose syntax has been checked, so that an
// error can only be the end.
func members(raw json.RawMessage) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		if _, err := decoder.Token(); err != nil {
			return
		}
		for decoder.More() {
			token, err := decoder.Token()
			name, isName := token.(string)
			if err != nil || !isName {
				return
			}
			var member json.RawMessage
			if decoder.Decode(&member) != nil || !yield(name, member) {
				return
			}
		}
	}
}
