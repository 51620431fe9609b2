package bootstrap

import (
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/jsondoc"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// parseConstraints returns the client's own constraints: those made of the node's metadata,
// and over them those that are spelled out.
func parseConstraints(spelledOut, keys jsondoc.Value, metadata *structpb.Struct) dynparam.ByType {
	constraints := make(map[string]dynparam.Constraints)
	for name, entry := range spelledOut.Entries() {
		var c dynparam.Constraints
		fail(entry, c.UnmarshalJSON(entry.Raw()))
		constraints[name] = c
	}
	own, err := dynparam.NewByType(constraints)
	fail(spelledOut, err)
	translated, err := dynparam.Exact(parseMetadataConstraints(keys, metadata))
	fail(keys, err)
	all, err := dynparam.NewByType(map[string]dynparam.Constraints{dynparam.AnyType: translated})
	fail(keys, err)
	return all.Merge(own)
}

// parseMetadataConstraints reads a list of keys of the node's metadata, and returns them with
// their values (TP2, "Migrating From Node Metadata"). A missing key and a value that is not
// a string are errors, as they would constrain nothing without notice.
func parseMetadataConstraints(v jsondoc.Value, metadata *structpb.Struct) map[string]string {
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
	return values
}
