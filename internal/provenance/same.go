package provenance

import (
	"bytes"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/protofield"
	"github.com/dynxds/dynxds/internal/typeurl"
)

// Same reports whether two versions of a resource on the wire differ at most in places, so that the second
// one decodes to what the first one, which is valid, was decoded to. It is false if the second one is
// malformed. Equal parts are compared, not parsed, and nothing is decoded but places that differ.
func Same(typeURL string, before, now []byte) bool {
	switch typeURL {
	case typeurl.Listener:
		return same(before, now, listener)
	case typeurl.RouteConfiguration:
		return same(before, now, routeConfiguration)
	case typeurl.Cluster:
		return same(before, now, cluster)
	case typeurl.Endpoints:
		return same(before, now, endpoints)
	default:
		return bytes.Equal(before, now)
	}
}

// shape says where a message has metadata, by the numbers of fields.
type shape struct {
	// inner is a field with messages of the shape within, 0 for none.
	inner  protowire.Number
	within *shape
	// metadata is the field with the metadata, 0 for none.
	metadata protowire.Number
}

var (
	listener           = &shape{metadata: 6}
	route              = &shape{metadata: 4}
	virtualHost        = &shape{inner: 3, within: route}
	routeConfiguration = &shape{inner: 2, within: virtualHost}
	cluster            = &shape{metadata: 25}
	lbEndpoint         = &shape{metadata: 3}
	locality           = &shape{inner: 2, within: lbEndpoint}
	endpoints          = &shape{inner: 2, within: locality}
)

func same(before, now []byte, s *shape) bool {
	if bytes.Equal(before, now) {
		return true
	}
	for {
		old, updated := nextBesidesPlaces(&before, s, false), nextBesidesPlaces(&now, s, true)
		switch {
		case old.broken || updated.broken:
			return false
		case old.end || updated.end:
			return old.end && updated.end
		case bytes.Equal(old.whole, updated.whole):
		case old.Number != updated.Number || old.Kind != protowire.BytesType || updated.Kind != protowire.BytesType:
			return false
		case old.Number == s.inner && same(old.Value, updated.Value, s.within):
		case old.Number == s.metadata && same(old.Value, updated.Value, metadata):
		default:
			return false
		}
	}
}

// metadata is the shape of Metadata, whose entries for places nextBesidesPlaces leaves out.
var metadata = &shape{}

// The numbers of fields in Metadata and in the entries of its maps.
const (
	filterMetadata = 1
	entryKey       = 1
	entryValue     = 2
)

// field is a field of a message, with its tag and length in whole.
type field struct {
	protofield.Field
	whole       []byte
	end, broken bool
}

// nextBesidesPlaces removes the next field from a message, and those before it that have nothing but
// places. If check is set, these have to be well-formed.
func nextBesidesPlaces(b *[]byte, s *shape, check bool) field {
	for len(*b) > 0 {
		f, rest, err := protofield.Next(*b)
		if err != nil {
			return field{broken: true}
		}
		whole := (*b)[:len(*b)-len(rest)]
		*b = rest
		switch {
		case f.Kind != protowire.BytesType:
		case s == metadata && f.Number == filterMetadata && isPlaces(f.Value),
			s.metadata != 0 && f.Number == s.metadata && onlyPlaces(f.Value):
			if check && !wellFormed(f.Value, s == metadata) {
				return field{broken: true}
			}
			continue
		}
		return field{Field: f, whole: whole}
	}
	return field{end: true}
}

// IsPlaces reports whether metadata on the wire is well-formed and has nothing but places.
func IsPlaces(metadata []byte) bool { return onlyPlaces(metadata) && wellFormed(metadata, false) }

// onlyPlaces reports whether metadata has nothing but places. Of empty metadata it has.
func onlyPlaces(b []byte) bool {
	return all(b, func(f protofield.Field) bool {
		return f.Number == filterMetadata && f.Kind == protowire.BytesType && isPlaces(f.Value)
	})
}

// isPlaces reports whether an entry of filter_metadata is that for places.
func isPlaces(entry []byte) bool {
	places := false
	return all(entry, func(f protofield.Field) bool {
		if f.Number == entryKey {
			places = string(f.Value) == Key
		}
		return f.Kind == protowire.BytesType && (f.Number == entryKey || f.Number == entryValue)
	}) && places
}

// wellFormed reports whether metadata for which onlyPlaces is true, or an entry for which isPlaces is, can be
// decoded. A key may occur twice, of which the last counts.
func wellFormed(b []byte, entry bool) bool {
	return all(b, func(f protofield.Field) bool {
		switch {
		case !entry:
			return wellFormed(f.Value, true)
		case f.Number == entryValue:
			return isStructOfStrings(f.Value) || proto.Unmarshal(f.Value, new(structpb.Struct)) == nil
		default:
			return utf8.Valid(f.Value)
		}
	})
}

// isStructOfStrings reports whether b is a Struct as Metadata makes it. It need not be decoded then.
func isStructOfStrings(b []byte) bool {
	return all(b, func(entry protofield.Field) bool {
		return entry.Number == structFields && entry.Kind == protowire.BytesType && all(entry.Value, func(f protofield.Field) bool {
			switch {
			case f.Kind != protowire.BytesType:
				return false
			case f.Number == entryKey:
				return utf8.Valid(f.Value)
			default:
				return f.Number == entryValue && all(f.Value, func(v protofield.Field) bool {
					return v.Number == valueString && v.Kind == protowire.BytesType && utf8.Valid(v.Value)
				})
			}
		})
	})
}

// The numbers of fields in Struct and Value.
const (
	structFields = 1
	valueString  = 3
)

// all reports whether a message is well-formed, and is true for all of its fields.
func all(b []byte, is func(protofield.Field) bool) bool {
	for len(b) > 0 {
		f, rest, err := protofield.Next(b)
		if err != nil || !is(f) {
			return false
		}
		b = rest
	}
	return true
}
