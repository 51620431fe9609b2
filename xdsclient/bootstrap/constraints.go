package bootstrap

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// The limits of xdsclient/dynparam, which are found here first, where the key can be named.
const (
	maxConstraintTypes = 128
	maxConstraintKeys  = 128
)

// parseConstraints returns the client's own constraints: those translated from the node's
// metadata, and over them those that are spelled out.
func parseConstraints(spelledOut, keys document.Value, metadata *structpb.Struct) dynparam.ByType {
	own := byType(spelledOut, parseClientConstraints(spelledOut))
	translated, err := dynparam.Exact(parseMetadataConstraints(keys, metadata))
	if err != nil {
		failWith(keys, err, strings.Clone)
	}
	return byType(keys, map[string]dynparam.Constraints{dynparam.AnyType: translated}).Merge(own)
}

func byType(v document.Value, constraints map[string]dynparam.Constraints) dynparam.ByType {
	types, err := dynparam.NewByType(constraints)
	if err != nil {
		failWith(v, err, strings.Clone)
	}
	return types
}

// parseClientConstraints returns the constraints by the name of the type. Names that are
// at fault are not among them.
func parseClientConstraints(v document.Value) map[string]dynparam.Constraints {
	if v.Absent() {
		return nil
	}
	constraints := make(map[string]dynparam.Constraints)
	types := 0
	for name, entry := range v.Entries() {
		types++
		var c dynparam.Constraints
		if err := c.UnmarshalJSON(entry.Raw()); err != nil {
			failWith(entry, err, strings.Clone)
		}
		if checkTypeName(name, entry) && types <= maxConstraintTypes {
			constraints[name] = c
		}
	}
	if types > maxConstraintTypes {
		v.Fault("", "expected at most %d types, found %d", maxConstraintTypes, types)
	}
	return constraints
}

// checkTypeName reports what no resource is of, so that constraints for it choose nothing.
// It does not know the types that the program may have of its own; see xdsname.CheckType.
func checkTypeName(name string, v document.Value) (ok bool) {
	if name == dynparam.AnyType {
		return true
	}
	_, err := xdsname.CheckType(name)
	if err == nil && (name == "" || strings.Contains(name, "/")) {
		err = fmt.Errorf("found %s", faults.Quote(name))
	}
	if err != nil {
		v.Fault("", `expected the name of a resource type such as "envoy.config.cluster.v3.Cluster", or "*", %v`, err)
	}
	return err == nil
}

// parseMetadataConstraints reads keys of the node's metadata, and returns them with their
// values (TP2, "Migrating From Node Metadata"). A key that is not there, or whose value is
// no string to match, is a fault, as it would constrain nothing without anyone noticing.
func parseMetadataConstraints(v document.Value, metadata *structpb.Struct) map[string]string {
	if v.Absent() {
		return nil
	}
	values := make(map[string]string)
	for _, element := range v.Elements("a list of keys of node.metadata") {
		key, ok := element.NonEmptyText("a key of node.metadata")
		if !ok {
			continue
		}
		found, exists := metadata.GetFields()[key]
		text, isString := found.GetKind().(*structpb.Value_StringValue)
		_, twice := values[key]
		switch {
		case !exists:
			element.Fault("", "expected a key of node.metadata, found %s, which it does not have", faults.Quote(key))
		case !isString:
			element.Fault("", "expected a key of node.metadata whose value is a string, found %s, whose value is not", faults.Quote(key))
		case twice:
			element.Fault("", "expected each key once, found %s again", faults.Quote(key))
		default:
			values[key] = text.StringValue
		}
	}
	if len(values) > maxConstraintKeys {
		v.Fault("", "expected at most %d keys, found %d", maxConstraintKeys, len(values))
		return nil
	}
	return values
}
