package bootstrap

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/jsonpath"
	"github.com/dynxds/dynxds/internal/xdsname"
)

// The limits that xdsclient/dynparam has for constraints. Those on size are its
// limits on the wire; the same constraints in JSON are never smaller.
const (
	maxConstraintTypes = 128
	maxConstraintKeys  = 128
	maxConstraintsSize = 64 << 10
)

// anyType stands for every type of resource.
const anyType = "*"

// parseClientConstraints checks the shape of DynamicParameterConstraints
// messages in proto JSON form (TP2) and keeps them as they are: what they mean
// is not this package's to know.
func parseClientConstraints(v jsonpath.Value) map[string]json.RawMessage {
	if v.Absent() {
		return nil
	}
	constraints := make(map[string]json.RawMessage)
	for name, entry := range v.Entries() {
		checkTypeName(name, entry)
		checkConstraints(entry)
		constraints[name] = entry.Raw
	}
	if n := len(constraints); n > maxConstraintTypes {
		v.Fail("expected at most %d types, found %d", maxConstraintTypes, n)
	}
	return constraints
}

// checkTypeName reports what no resource is of, so that constraints for it choose nothing.
// It does not know the types that the program may have of its own; see xdsname.CheckType.
func checkTypeName(name string, v jsonpath.Value) {
	if name == anyType {
		return
	}
	_, err := xdsname.CheckType(name)
	if err == nil && (name == "" || strings.Contains(name, "/")) {
		err = fmt.Errorf("found %s", jsonpath.Quote(name))
	}
	if err != nil {
		v.Fail(`expected the name of a resource type such as "envoy.config.cluster.v3.Cluster", or "*", %v`, err)
	}
}

func checkConstraints(v jsonpath.Value) {
	switch {
	case len(v.Raw) > maxConstraintsSize:
		v.Fail("expected at most %d bytes, found %d", maxConstraintsSize, len(v.Raw))
		return
	case !utf8.Valid(v.Raw):
		v.Fail("expected UTF-8, found other bytes")
		return
	}
	o, ok := v.Object("key_constraints", "keyConstraints")
	if !ok {
		return
	}
	keys := o.GetProto("key_constraints", "keyConstraints")
	if keys.Absent() {
		return
	}
	n := 0
	for _, key := range keys.Entries() {
		checkKeyConstraints(key)
		n++
	}
	if n > maxConstraintKeys {
		keys.Fail("expected at most %d keys, found %d", maxConstraintKeys, n)
	}
}

func checkKeyConstraints(v jsonpath.Value) {
	o, ok := v.Object("constraints", "invert")
	if !ok {
		return
	}
	if invert := o.Get("invert"); !invert.Absent() && invert.Kind() != jsonpath.Boolean {
		invert.Expected(jsonpath.Boolean)
	}
	for constraint := range o.Get("constraints").NonEmpty("a list with at least one constraint") {
		checkConstraint(constraint)
	}
}

func checkConstraint(v jsonpath.Value) {
	o, ok := v.Object("value", "integer_range_list", "integerRangeList")
	if !ok {
		return
	}
	exact, ranges := o.Get("value"), o.GetProto("integer_range_list", "integerRangeList")
	switch {
	case exact.Absent() && ranges.Absent():
		v.Fail("expected value or integer_range_list, found neither")
	case !exact.Absent() && !ranges.Absent():
		v.Fail("expected either value or integer_range_list, found both")
	case ranges.Absent():
		exact.Text()
	default:
		checkRanges(ranges)
	}
}

func checkRanges(v jsonpath.Value) {
	o, ok := v.Object("range")
	if !ok {
		return
	}
	for element := range o.Get("range").NonEmpty("a list with at least one range") {
		checkRange(element)
	}
}

func checkRange(v jsonpath.Value) {
	o, ok := v.Object("min_value", "minValue", "max_value", "maxValue")
	if !ok {
		return
	}
	low, lowOK := o.GetProto("min_value", "minValue").Uint64()
	high, highOK := o.GetProto("max_value", "maxValue").Uint64()
	switch {
	case !lowOK || !highOK:
	case low == nil && high == nil:
		v.Fail("expected min_value, max_value or both, found neither")
	case low != nil && high != nil && *low > *high:
		v.Fail("expected a min_value that is at most max_value, found %d and %d", *low, *high)
	}
}

// parseMetadataConstraints reads keys of the node's metadata. TP2 translates an
// entry that the metadata contains; a key that is not there, or whose value is
// no string to match, would constrain nothing without anyone noticing.
func parseMetadataConstraints(v jsonpath.Value, metadata *structpb.Struct) []string {
	if v.Absent() {
		return nil
	}
	var keys []string
	seen := make(map[string]bool)
	for element := range v.Elements("a list of keys of node.metadata") {
		key, ok := element.NonEmptyText("a key of node.metadata")
		if !ok {
			continue
		}
		found, exists := metadata.GetFields()[key]
		_, isString := found.GetKind().(*structpb.Value_StringValue)
		switch {
		case !exists:
			element.Fail("expected a key of node.metadata, found %s, which it does not have", jsonpath.Quote(key))
		case !isString:
			element.Fail("expected a key of node.metadata whose value is a string, found %s, whose value is not", jsonpath.Quote(key))
		case seen[key]:
			element.Fail("expected each key once, found %s again", jsonpath.Quote(key))
		default:
			seen[key] = true
			keys = append(keys, key)
		}
	}
	if len(keys) > maxConstraintKeys {
		v.Fail("expected at most %d keys, found %d", maxConstraintKeys, len(keys))
	}
	return keys
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
