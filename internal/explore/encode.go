package explore

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Encoder writes a state in a form that is the same for two states that behave alike: pointers are numbered in
// the order in which they are met, and of counters only the order among those of one kind counts, or how far they
// are from the largest one.
type Encoder struct {
	// Counters are the fields that are counters, as "type.field" without type parameters, and their kinds. A text
	// is a counter by the number after its last "-".
	Counters map[string]string
	// Distances are the kinds of counters that the system compares with a bound: what counts is how far they are from the
	// largest one of their kind, up to this number.
	Distances map[string]uint64
	// Skipped are fields, or types, that change nothing of what the system does.
	Skipped map[string]bool
	// Texts has for types how they are encoded, in place of their fields.
	Texts map[reflect.Type]func(*Encoder, reflect.Value)

	b      []byte
	seen   map[uintptr]int
	ranked map[string][]rankedNumber
	types  map[reflect.Type][]encodedField
}

type rankedNumber struct {
	at    int
	value uint64
}

type encodedField struct {
	index int
	kind  string // of a counter, or ""
}

// hash returns the hash of what encode writes.
func (e *Encoder) hash(encode func(*Encoder)) [2]uint64 {
	e.b, e.seen, e.ranked = e.b[:0], make(map[uintptr]int), make(map[string][]rankedNumber)
	encode(e)
	for kind, list := range e.ranked {
		e.writeCounters(list, e.Distances[kind])
	}
	return [2]uint64{maphash.Bytes(seeds[0], e.b), maphash.Bytes(seeds[1], e.b)}
}

// writeCounters writes the ranks of counters of one kind or, unless most is 0, their distances.
func (e *Encoder) writeCounters(list []rankedNumber, most uint64) {
	values := []uint64{0}
	for _, n := range list {
		values = append(values, n.value)
	}
	slices.Sort(values)
	values = slices.Compact(values)
	for _, n := range list {
		place, _ := slices.BinarySearch(values, n.value)
		if most > 0 {
			place = int(min(values[len(values)-1]-n.value, most))
		}
		e.b[n.at] = byte(place)
	}
}

// Byte writes a byte.
func (e *Encoder) Byte(b byte) { e.b = append(e.b, b) }

// Bool writes a bool.
func (e *Encoder) Bool(on bool) {
	if on {
		e.Byte(1)
	} else {
		e.Byte(0)
	}
}

// Number writes a number.
func (e *Encoder) Number(n uint64) { e.b = binary.AppendUvarint(e.b, n) }

// Text writes a text.
func (e *Encoder) Text(s string) {
	e.Number(uint64(len(s)))
	e.b = append(e.b, s...)
}

// Counter writes the rank of a number, which is at least 0, among those of its kind.
func (e *Encoder) Counter(kind string, n uint64) {
	e.ranked[kind] = append(e.ranked[kind], rankedNumber{len(e.b), n})
	e.b = append(e.b, 0)
}

// Value writes a value with all that it leads to.
func (e *Encoder) Value(v any) { e.value(reflect.ValueOf(v), "") }

// Reflect is Value for a field that is not exported.
func (e *Encoder) Reflect(v reflect.Value) { e.value(v, "") }

// value encodes a value, whose numbers, and texts that end with one, are counters of a kind if that is not empty.
func (e *Encoder) value(v reflect.Value, kind string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Struct:
		if text := e.Texts[v.Type()]; text != nil && (v.Kind() == reflect.Struct || !v.IsNil()) {
			text(e, v)
			return
		}
	}
	switch v.Kind() {
	case reflect.Bool:
		e.Bool(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		e.number(uint64(v.Int()), kind)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		e.number(v.Uint(), kind)
	case reflect.String:
		if kind != "" {
			e.Counter(kind, NumberIn(v.String()))
		} else {
			e.Text(v.String())
		}
	case reflect.Slice, reflect.Array:
		e.list(v, kind)
	case reflect.Map:
		e.mapping(v, kind)
	case reflect.Pointer:
		e.pointer(v)
	case reflect.Interface:
		if v.IsNil() {
			e.Byte(0)
			return
		}
		e.Text(v.Elem().Type().String())
		e.value(v.Elem(), kind)
	case reflect.Struct:
		for _, f := range e.fieldsOf(v.Type()) {
			e.value(v.Field(f.index), f.kind)
		}
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		e.Bool(!v.IsNil())
	default:
		panic("a state has a " + v.Kind().String())
	}
}

func (e *Encoder) number(n uint64, kind string) {
	if kind != "" {
		e.Counter(kind, n)
	} else {
		e.Number(n)
	}
}

// NumberIn returns the number after the last "-" of a text, 0 if there is none.
func NumberIn(s string) uint64 {
	n, _ := strconv.ParseUint(s[strings.LastIndexByte(s, '-')+1:], 10, 64)
	return n
}

func (e *Encoder) list(v reflect.Value, kind string) {
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
		e.Text(string(v.Bytes()))
		return
	}
	e.Number(uint64(v.Len()))
	for i := range v.Len() {
		e.value(v.Index(i), kind)
	}
}

func (e *Encoder) fieldsOf(t reflect.Type) []encodedField {
	if fields, ok := e.types[t]; ok {
		return fields
	}
	name, _, _ := strings.Cut(t.Name(), "[")
	fields := []encodedField{}
	for i := range t.NumField() {
		full := name + "." + t.Field(i).Name
		if !e.Skipped[full] && !e.Skipped[name] {
			fields = append(fields, encodedField{i, e.Counters[full]})
		}
	}
	if e.types == nil {
		e.types = make(map[reflect.Type][]encodedField)
	}
	e.types[t] = fields
	return fields
}

func (e *Encoder) pointer(v reflect.Value) {
	if v.IsNil() {
		e.Byte(0)
		return
	}
	if n, ok := e.seen[v.Pointer()]; ok {
		e.Byte(2)
		e.Number(uint64(n))
		return
	}
	e.seen[v.Pointer()] = len(e.seen)
	e.Byte(3)
	e.value(v.Elem(), "")
}

// mapping encodes a map in the order of its encoded keys.
func (e *Encoder) mapping(v reflect.Value, kind string) {
	e.Number(uint64(v.Len()))
	type entry struct {
		key   []byte
		value reflect.Value
	}
	var entries []entry
	for it := v.MapRange(); it.Next(); {
		start := len(e.b)
		e.value(it.Key(), "")
		entries = append(entries, entry{bytes.Clone(e.b[start:]), it.Value()})
		e.b = e.b[:start]
	}
	slices.SortFunc(entries, func(a, b entry) int { return bytes.Compare(a.key, b.key) })
	for _, x := range entries {
		e.b = append(e.b, x.key...)
		e.value(x.value, kind)
	}
}
