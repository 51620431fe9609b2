package provenance

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/internal/protofield"
)

// The numbers of fields in Metadata, in the entries of maps, in Struct and in Value.
const (
	filterMetadata = 1
	entryKey       = 1
	entryValue     = 2
	structFields   = 1
	stringValue    = 3
)

// IsPlaces reports whether a Metadata on the wire is as [Metadata] makes it. It decodes nothing: routes are compared by
// it in large numbers.
func IsPlaces(metadata []byte) bool {
	return all(metadata, filterMetadata, func(entry []byte) bool {
		return isEntry(entry, func(key []byte) bool { return string(key) == Key }, isStructOfStrings)
	})
}

func isStructOfStrings(b []byte) bool {
	return all(b, structFields, func(entry []byte) bool {
		return isEntry(entry, utf8.Valid, func(value []byte) bool { return all(value, stringValue, utf8.Valid) })
	})
}

// isEntry reports whether an entry of a map has nothing but a key and a value that are right.
func isEntry(b []byte, isKey, isValue func([]byte) bool) bool {
	keyed := false
	for len(b) > 0 {
		f, rest, err := protofield.Next(b)
		switch {
		case err != nil || f.Kind != protowire.BytesType:
			return false
		case f.Number == entryKey && isKey(f.Value):
			keyed = true
		case f.Number != entryValue || !isValue(f.Value):
			return false
		}
		b = rest
	}
	return keyed
}

// all reports whether a message has nothing but fields of that number with messages or texts, and is true for all of these.
func all(b []byte, number protowire.Number, is func([]byte) bool) bool {
	for len(b) > 0 {
		f, rest, err := protofield.Next(b)
		if err != nil || f.Number != number || f.Kind != protowire.BytesType || !is(f.Value) {
			return false
		}
		b = rest
	}
	return true
}
