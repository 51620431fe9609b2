// Package jsonpath reads a JSON document value by value, each with its place in the
// document, and gathers everything that is wrong with it.
//
// It is for configuration that people write: encoding/json's own decoding into
// structs, and protojson, stop at the first mismatch and know no path through a list.
// It is not for data on the path of RPCs or updates, and knows nothing of what the
// values mean: that is the callers' part, the bootstrap file and the constraints in
// it. The bytes come from them, and the faults go back to them.
package jsonpath

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Value is one JSON value together with its place in the document, so that whoever
// reads it can lay a fault at its door.
type Value struct {
	// Path is the place, for example `authorities["a"].xds_servers[0]`; empty for the
	// document itself.
	Path string
	// Raw is the value as it is written. It is empty if there is none, as the key is
	// absent.
	Raw json.RawMessage
	// To gets the faults.
	To *Collector
}

// Object is a JSON object of which only the known keys were kept.
type Object struct {
	Value
	members map[string]Value
}

// Document returns data, without white space around it, as a value without a path.
// The error says why data is not JSON, and where.
func Document(data []byte, to *Collector) (Value, error) {
	var document json.RawMessage
	err := json.Unmarshal(data, &document)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		line, column := position(data, syntax.Offset)
		return Value{}, fmt.Errorf("not JSON: line %d, column %d: %w", line, column, syntax)
	}
	return Value{Raw: bytes.TrimSpace(data), To: to}, err
}

// position turns the offset of a syntax error, which counts the bytes up to and
// including the offending one, into a line and a column that count from 1.
func position(data []byte, offset int64) (line, column int) {
	before := data[:min(max(offset-1, 0), int64(len(data)))]
	line = 1 + bytes.Count(before, []byte("\n"))
	column = 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return line, column
}

// The kinds of value, as faults call them.
const (
	Nothing = "nothing"
	Null    = "null"
	String  = "a string"
	List    = "a list"
	Map     = "an object"
	Boolean = "a boolean"
	Number  = "a number"
)

// Kind returns the kind of the value.
func (v Value) Kind() string {
	if len(v.Raw) == 0 {
		return Nothing
	}
	switch v.Raw[0] {
	case 'n':
		return Null
	case '"':
		return String
	case '[':
		return List
	case '{':
		return Map
	case 't', 'f':
		return Boolean
	default:
		return Number
	}
}

// Absent reports whether there is no value. As in proto JSON, null means the same as
// leaving the key out.
func (v Value) Absent() bool { return v.Kind() == Nothing || v.Kind() == Null }

// Fail reports a fault of the value.
func (v Value) Fail(format string, args ...any) { v.To.Add(v.Path, fmt.Sprintf(format, args...)) }

// Expected reports that the value is not what was expected.
func (v Value) Expected(what string) { v.Fail("expected %s, found %s", what, v.Kind()) }

// Is reports whether the value is of the kind; if not, that is a fault.
func (v Value) Is(kind string) bool {
	if v.Kind() == kind {
		return true
	}
	v.Expected(kind)
	return false
}

// Boolean returns a boolean. Anything else is a fault, and false.
func (v Value) Boolean() bool { return v.Is(Boolean) && v.Raw[0] == 't' }

// Text returns a string, or "" if there is none.
func (v Value) Text() string {
	if v.Absent() {
		return ""
	}
	s, _ := v.RequiredText(String)
	return s
}

// RequiredText returns a string. what describes it in the fault.
func (v Value) RequiredText(what string) (s string, ok bool) {
	if v.Kind() != String || json.Unmarshal(v.Raw, &s) != nil {
		v.Expected(what)
		return "", false
	}
	return s, true
}

// NonEmptyText is RequiredText for strings that have to say something.
func (v Value) NonEmptyText(what string) (s string, ok bool) {
	s, ok = v.RequiredText(what)
	if ok && s == "" {
		v.Fail("expected %s, found an empty string", what)
		return "", false
	}
	return s, ok
}

// Uint64 reads an integer as proto JSON has it, in quotes or without. n is nil if
// there is none, or one that is no such integer, which is a fault and not ok.
func (v Value) Uint64() (n *uint64, ok bool) {
	if v.Absent() {
		return nil, true
	}
	var wrapper wrapperspb.UInt64Value
	if err := protojson.Unmarshal(v.Raw, &wrapper); err != nil {
		v.Fail("expected an integer from 0 to 2^64-1, found %s that is none", v.Kind())
		return nil, false
	}
	return &wrapper.Value, true
}

// Object returns the members with the given keys. Other keys are ignored, however
// often they occur. It is not ok, and a fault, if the value is no object.
func (v Value) Object(keys ...string) (o Object, ok bool) {
	o = Object{Value: v, members: make(map[string]Value, len(keys))}
	if !v.Is(Map) {
		return o, false
	}
	for key, raw := range members(v.Raw) {
		if !slices.Contains(keys, key) {
			continue
		}
		member := Value{Path: Join(v.Path, key), Raw: raw, To: v.To}
		if _, twice := o.members[key]; twice {
			member.Fail("expected the key once, found it again")
			continue
		}
		o.members[key] = member
	}
	return o, true
}

// Get returns the member with the key, one of those Object was called with.
func (o Object) Get(key string) Value {
	if member, ok := o.members[key]; ok {
		return member
	}
	return Value{Path: Join(o.Path, key), To: o.To}
}

// GetProto returns a field of a message in proto JSON form, which has two spellings
// for a name of several words.
func (o Object) GetProto(snake, camel string) Value {
	inSnake, inCamel := o.Get(snake), o.Get(camel)
	if inCamel.Absent() {
		return inSnake
	}
	if !inSnake.Absent() {
		inCamel.Fail("expected the field once, found it as %s as well", snake)
	}
	return inCamel
}

// Entries walks an object whose keys are names of the user's.
func (v Value) Entries() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		if !v.Is(Map) {
			return
		}
		seen := make(map[string]bool)
		for name, raw := range members(v.Raw) {
			entry := Value{Path: v.Path + "[" + Quote(name) + "]", Raw: raw, To: v.To}
			if seen[name] {
				entry.Fail("expected the name once, found it again")
				continue
			}
			seen[name] = true
			if !yield(name, entry) {
				return
			}
		}
	}
}

// Elements walks a list. what describes the list in the fault.
func (v Value) Elements(what string) iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if v.Kind() != List {
			v.Expected(what)
			return
		}
		for i, raw := range elements(v.Raw) {
			if !yield(Value{Path: fmt.Sprintf("%s[%d]", v.Path, i), Raw: raw, To: v.To}) {
				return
			}
		}
	}
}

// NonEmpty is Elements for a list that has to have one.
func (v Value) NonEmpty(what string) iter.Seq[Value] {
	return func(yield func(Value) bool) {
		empty := true
		for element := range v.Elements(what) {
			if empty = false; !yield(element) {
				return
			}
		}
		if empty && v.Kind() == List {
			v.Fail("expected %s, found an empty list", what)
		}
	}
}

// elements walks the elements of a list whose syntax has been checked, so that an
// error can only be the end.
func elements(raw json.RawMessage) iter.Seq2[int, json.RawMessage] {
	return func(yield func(int, json.RawMessage) bool) {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		if _, err := decoder.Token(); err != nil {
			return
		}
		for i := 0; decoder.More(); i++ {
			var element json.RawMessage
			if decoder.Decode(&element) != nil || !yield(i, element) {
				return
			}
		}
	}
}

// members is elements for an object.
func members(raw json.RawMessage) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		if _, err := decoder.Token(); err != nil {
			return
		}
		for decoder.More() {
			token, err := decoder.Token()
			key, isKey := token.(string)
			if err != nil || !isKey {
				return
			}
			var member json.RawMessage
			if decoder.Decode(&member) != nil || !yield(key, member) {
				return
			}
		}
	}
}
