package faults

import (
	"strconv"
	"strings"
)

// Path is a place in a document or message. It is a chain of steps that is written out
// only if there is an error, since most places have none. The nil *Path is the whole.
// A Path is never changed, and is safe for concurrent use.
type Path struct {
	parent *Path
	name   string
	// index is the place in the list called name, or one of the constants below.
	index int
}

const (
	isField = -1 // name is a field
	isKey   = -2 // name is a key of a map
)

// Field returns the path of a field of the whole: "name".
func Field(name string) *Path { return (*Path)(nil).Field(name) }

// Item returns the path of an element of a repeated field of the whole: "name[i]".
func Item(name string, i int) *Path { return (*Path)(nil).Item(name, i) }

// Field returns the path of a field: "parent.name".
func (p *Path) Field(name string) *Path { return &Path{parent: p, name: name, index: isField} }

// Item returns the path of an element of a repeated field: "parent.name[i]".
func (p *Path) Item(name string, i int) *Path { return &Path{parent: p, name: name, index: i} }

// Key returns the path of an entry of the map at p: `p["key"]`.
func (p *Path) Key(key string) *Path { return &Path{parent: p, name: key, index: isKey} }

// Clone returns the same path in memory of its own. What keeps a path keeps a clone, so that paths that nothing keeps need no heap.
func (p *Path) Clone() *Path {
	if p == nil {
		return nil
	}
	return &Path{parent: p.parent.Clone(), name: strings.Clone(p.name), index: p.index}
}

// String returns the path as text. It is empty for nil.
func (p *Path) String() string { return string(p.append(nil)) }

func (p *Path) append(b []byte) []byte {
	if p == nil {
		return b
	}
	b = p.parent.append(b)
	if p.index == isKey {
		b = append(b, '[')
		b = append(b, Quote(p.name)...)
		return append(b, ']')
	}
	if len(b) > 0 {
		b = append(b, '.')
	}
	b = append(b, p.name...)
	if p.index != isField {
		b = append(b, '[')
		b = strconv.AppendInt(b, int64(p.index), 10)
		b = append(b, ']')
	}
	return b
}

// Join returns the path of a child below a parent, both as text. Either may be empty,
// and the child may begin with an index or a key in brackets.
func Join(parent, child string) string {
	if parent == "" || child == "" || strings.HasPrefix(child, "[") {
		return parent + child
	}
	return parent + "." + child
}
