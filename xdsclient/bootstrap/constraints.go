package bootstrap

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The limits that xdsclient/dynparam has for constraints. Those on size are its
// limits on the wire; the same constraints in JSON are never smaller.
const (
	maxConstraintTypes = 128
	maxConstraintKeys  = 128
	maxConstraintsSize = 64 << 10
)

// parseClientConstraints checks the shape of DynamicParameterConstraints
// messages in proto JSON form (TP2) and keeps them as they are: what they mean
// is not this package's to know.
func parseClientConstraints(v value) map[string]json.RawMessage {
	if v.absent() {
		return nil
	}
	constraints := make(map[string]json.RawMessage)
	for name, entry := range v.entries() {
		if name == "" || strings.Contains(name, "/") {
			entry.fail(`expected the name of a resource type such as "envoy.config.cluster.v3.Cluster", or "*", found %s`, quote(name))
		}
		checkConstraints(entry)
		constraints[name] = entry.raw
	}
	if n := len(constraints); n > maxConstraintTypes {
		v.fail("expected at most %d types, found %d", maxConstraintTypes, n)
	}
	return constraints
}

func checkConstraints(v value) {
	switch {
	case len(v.raw) > maxConstraintsSize:
		v.fail("expected at most %d bytes, found %d", maxConstraintsSize, len(v.raw))
		return
	case !utf8.Valid(v.raw):
		v.fail("expected UTF-8, found other bytes")
		return
	}
	o, ok := v.object("key_constraints", "keyConstraints")
	if !ok {
		return
	}
	keys := o.getProto("key_constraints", "keyConstraints")
	if keys.absent() {
		return
	}
	n := 0
	for _, key := range keys.entries() {
		checkKeyConstraints(key)
		n++
	}
	if n > maxConstraintKeys {
		keys.fail("expected at most %d keys, found %d", maxConstraintKeys, n)
	}
}

func checkKeyConstraints(v value) {
	o, ok := v.object("constraints", "invert")
	if !ok {
		return
	}
	if invert := o.get("invert"); !invert.absent() && invert.kind() != kindBoolean {
		invert.expected(kindBoolean)
	}
	for constraint := range o.get("constraints").nonEmpty("a list with at least one constraint") {
		checkConstraint(constraint)
	}
}

func checkConstraint(v value) {
	o, ok := v.object("value", "integer_range_list", "integerRangeList")
	if !ok {
		return
	}
	exact, ranges := o.get("value"), o.getProto("integer_range_list", "integerRangeList")
	switch {
	case exact.absent() && ranges.absent():
		v.fail("expected value or integer_range_list, found neither")
	case !exact.absent() && !ranges.absent():
		v.fail("expected either value or integer_range_list, found both")
	case ranges.absent():
		exact.text()
	default:
		checkRanges(ranges)
	}
}

func checkRanges(v value) {
	o, ok := v.object("range")
	if !ok {
		return
	}
	for element := range o.get("range").nonEmpty("a list with at least one range") {
		checkRange(element)
	}
}

func checkRange(v value) {
	o, ok := v.object("min_value", "minValue", "max_value", "maxValue")
	if !ok {
		return
	}
	low, high := o.getProto("min_value", "minValue"), o.getProto("max_value", "maxValue")
	if low.absent() && high.absent() {
		v.fail("expected min_value, max_value or both, found neither")
		return
	}
	lowest, lowOK := low.uint64()
	highest, highOK := high.uint64()
	if !low.absent() && !high.absent() && lowOK && highOK && lowest > highest {
		v.fail("expected a min_value that is at most max_value, found %d and %d", lowest, highest)
	}
}

// uint64 reads a number as proto JSON has it, in quotes or without. An absent
// one is 0.
func (v value) uint64() (n uint64, ok bool) {
	if v.absent() {
		return 0, true
	}
	var wrapper wrapperspb.UInt64Value
	if err := protojson.Unmarshal(v.raw, &wrapper); err != nil {
		v.fail("expected an integer from 0 to 2^64-1, found %s that is none", v.kind())
		return 0, false
	}
	return wrapper.GetValue(), true
}

// parseMetadataConstraints reads keys of the node's metadata. TP2 translates an
// entry that the metadata contains; a key that is not there, or whose value is
// no string to match, would constrain nothing without anyone noticing.
func parseMetadataConstraints(v value, metadata *structpb.Struct) []string {
	if v.absent() {
		return nil
	}
	var keys []string
	seen := make(map[string]bool)
	for element := range v.elements("a list of keys of node.metadata") {
		key, ok := element.nonEmptyText("a key of node.metadata")
		if !ok {
			continue
		}
		found, exists := metadata.GetFields()[key]
		_, isString := found.GetKind().(*structpb.Value_StringValue)
		switch {
		case !exists:
			element.fail("expected a key of node.metadata, found %s, which it does not have", quote(key))
		case !isString:
			element.fail("expected a key of node.metadata whose value is a string, found %s, whose value is not", quote(key))
		case seen[key]:
			element.fail("expected each key once, found %s again", quote(key))
		default:
			seen[key] = true
			keys = append(keys, key)
		}
	}
	if len(keys) > maxConstraintKeys {
		v.fail("expected at most %d keys, found %d", maxConstraintKeys, len(keys))
	}
	return keys
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
