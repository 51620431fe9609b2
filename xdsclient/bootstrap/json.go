package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// value is one JSON value together with the place it has in the document, so
// that whoever reads it can lay a fault at its door. encoding/json's own
// decoding into structs stops at the first mismatch and knows no path through
// a list, which is why the document is walked by hand.
type value struct {
	path string
	raw  json.RawMessage // empty if the key is absent
	to   *collector
}

// object is a JSON object of which only the known keys were kept.
type object struct {
	value
	members map[string]value
}

// checkSyntax reports why data is not a JSON document that may be walked.
func checkSyntax(data []byte) error {
	if len(data) > MaxSize {
		return fmt.Errorf("expected at most %d bytes, found %d", MaxSize, len(data))
	}
	var document json.RawMessage
	err := json.Unmarshal(data, &document)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		line, column := position(data, syntax.Offset)
		return fmt.Errorf("not JSON: line %d, column %d: %w", line, column, syntax)
	}
	return err
}

// position turns the offset of a syntax error, which counts the bytes up to and
// including the offending one, into a line and a column that count from 1.
func position(data []byte, offset int64) (line, column int) {
	before := data[:min(max(offset-1, 0), int64(len(data)))]
	line = 1 + bytes.Count(before, []byte("\n"))
	column = 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return line, column
}

// absent reports whether there is no value. As in proto JSON, null means the
// same as leaving the key out.
func (v value) absent() bool { return v.kind() == kindNothing || v.kind() == kindNull }

func (v value) fail(format string, args ...any) {
	v.to.add(v.path, fmt.Sprintf(format, args...))
}

// expected reports a value of another type than what.
func (v value) expected(what string) { v.fail("expected %s, found %s", what, v.kind()) }

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

func (v value) kind() string {
	if len(v.raw) == 0 {
		return kindNothing
	}
	switch v.raw[0] {
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

// text returns a string, or "" if the key is absent.
func (v value) text() string {
	if v.absent() {
		return ""
	}
	s, _ := v.requiredText(kindString)
	return s
}

// requiredText returns a string. what describes it in the fault.
func (v value) requiredText(what string) (s string, ok bool) {
	if v.kind() != kindString || json.Unmarshal(v.raw, &s) != nil {
		v.expected(what)
		return "", false
	}
	return s, true
}

// nonEmptyText is requiredText for strings that have to say something.
func (v value) nonEmptyText(what string) (s string, ok bool) {
	s, ok = v.requiredText(what)
	if ok && s == "" {
		v.fail("expected %s, found an empty string", what)
		return "", false
	}
	return s, ok
}

// object returns the members with the given keys. Other keys are ignored,
// however often they occur.
func (v value) object(keys ...string) (object, bool) {
	o := object{value: v, members: make(map[string]value, len(keys))}
	if !v.isObject() {
		return o, false
	}
	for key, raw := range members(v.raw) {
		if !slices.Contains(keys, key) {
			continue
		}
		member := value{path: joinPath(v.path, key), raw: raw, to: v.to}
		if _, twice := o.members[key]; twice {
			member.fail("expected the key once, found it again")
			continue
		}
		o.members[key] = member
	}
	return o, true
}

// get returns the member with the key, one of those object was called with.
func (o object) get(key string) value {
	if member, ok := o.members[key]; ok {
		return member
	}
	return value{path: joinPath(o.path, key), to: o.to}
}

// getProto returns a field of a message in proto JSON form, which has two
// spellings for a name of several words.
func (o object) getProto(snake, camel string) value {
	inSnake, inCamel := o.get(snake), o.get(camel)
	if inCamel.absent() {
		return inSnake
	}
	if !inSnake.absent() {
		inCamel.fail("expected the field once, found it as %s as well", snake)
	}
	return inCamel
}

// entries walks an object whose keys are names of the user's.
func (v value) entries() iter.Seq2[string, value] {
	return func(yield func(string, value) bool) {
		if !v.isObject() {
			return
		}
		seen := make(map[string]bool)
		for name, raw := range members(v.raw) {
			entry := value{path: v.path + "[" + quote(name) + "]", raw: raw, to: v.to}
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

// elements walks a list. what describes the list in the fault.
func (v value) elements(what string) iter.Seq[value] {
	return func(yield func(value) bool) {
		if len(v.raw) == 0 || v.raw[0] != '[' {
			v.expected(what)
			return
		}
		decoder := json.NewDecoder(bytes.NewReader(v.raw))
		if _, err := decoder.Token(); err != nil {
			return
		}
		for i := 0; decoder.More(); i++ {
			var raw json.RawMessage
			if decoder.Decode(&raw) != nil || !yield(value{path: v.path + "[" + strconv.Itoa(i) + "]", raw: raw, to: v.to}) {
				return
			}
		}
	}
}

// nonEmpty is elements for a list that has to have one.
func (v value) nonEmpty(what string) iter.Seq[value] {
	return func(yield func(value) bool) {
		empty := true
		before := v.to.total()
		for element := range v.elements(what) {
			empty = false
			if !yield(element) {
				return
			}
		}
		if empty && v.to.total() == before {
			v.fail("expected %s, found an empty list", what)
		}
	}
}

func (v value) isObject() bool {
	if v.kind() == kindObject {
		return true
	}
	v.expected(kindObject)
	return false
}

// members walks the members of an object whose syntax has been checked, so that
// an error can only be the end.
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

// canonical returns the value of raw in a form that encoding/json always writes
// the same way, whatever the order of keys and the white space in raw.
func canonical(raw json.RawMessage) any {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return string(raw)
	}
	return v
}

// quote quotes text from the document for a fault, cut to a bearable length.
func quote(s string) string { return strconv.Quote(shorten(s, 100)) }

func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
