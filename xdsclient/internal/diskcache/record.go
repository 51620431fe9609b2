package diskcache

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/internal/protofield"
)

// Key identifies a record.
type Key struct {
	TypeURL, Name string
	// Constraints are those of the subscription, serialized.
	Constraints string
	// Member and Parameters are those of the member of a collection, which Name is that of. They
	// are empty for a resource, and for a collection as a whole.
	Member, Parameters string
}

// Record is what the file has of one resource. It is immutable.
type Record struct {
	Key
	// Server is server_uri of the management server that sent the resource.
	Server string
	// Time is when the resource was last known to be current, or was refused.
	Time time.Time
	// Refused says that the server does not have the resource for these constraints, or denies it. There is no
	// Resource then.
	Refused bool
	// Enveloped says that Resource is as the server sent it, envelope included.
	Enveloped bool
	// Secured says that connections need security because of the resource.
	Secured bool
	// Resource is an envoy.service.discovery.v3.Resource, serialized. It is empty for a collection
	// as a whole, which may have no members.
	Resource []byte
}

// header is the first message of a file.
type header struct {
	program string
	// securedSince is when the file last got a resource that is Secured and was not before, or zero.
	securedSince time.Time
}

func (h *header) append(b []byte) []byte {
	b = appendText(b, 1, h.program)
	if h.securedSince.IsZero() {
		return b
	}
	return appendInt(b, 2, h.securedSince.UnixNano())
}

func (h *header) parse(b []byte) error {
	return protofield.Each(b, "header", func(f protofield.Field) error {
		switch f.Number {
		case 1:
			return setText(&h.program, f)
		case 2:
			h.securedSince = time.Unix(0, int64(f.Varint))
		}
		return nil
	})
}

func (r *Record) append(b []byte) []byte {
	for i, text := range []string{r.TypeURL, r.Name, r.Constraints, r.Member, r.Parameters, r.Server} {
		b = appendText(b, protowire.Number(i+1), text)
	}
	b = appendInt(b, 7, r.Time.UnixNano())
	b = appendInt(b, 8, int64(protowire.EncodeBool(r.Refused)))
	b = appendInt(b, 9, int64(protowire.EncodeBool(r.Enveloped)))
	if len(r.Resource) > 0 {
		b = protowire.AppendBytes(protowire.AppendTag(b, 10, protowire.BytesType), r.Resource)
	}
	return appendInt(b, 11, int64(protowire.EncodeBool(r.Secured)))
}

// parse reads a record. Its resource shares its memory with b.
func (r *Record) parse(b []byte) error {
	err := protofield.Each(b, "record", func(f protofield.Field) error {
		switch f.Number {
		case 1:
			return setText(&r.TypeURL, f)
		case 2:
			return setText(&r.Name, f)
		case 3:
			r.Constraints = string(f.Value)
		case 4:
			return setText(&r.Member, f)
		case 5:
			r.Parameters = string(f.Value)
		case 6:
			return setText(&r.Server, f)
		case 7:
			r.Time = time.Unix(0, int64(f.Varint))
		case 8:
			r.Refused = protowire.DecodeBool(f.Varint)
		case 9:
			r.Enveloped = protowire.DecodeBool(f.Varint)
		case 10:
			r.Resource = f.Value
		case 11:
			r.Secured = protowire.DecodeBool(f.Varint)
		}
		return nil
	})
	if err == nil && (r.TypeURL == "" || r.Name == "") {
		err = errors.New("a record has no type or no name")
	}
	return err
}

func setText(to *string, f protofield.Field) error {
	if !utf8.Valid(f.Value) {
		return fmt.Errorf("field %d is not valid UTF-8", f.Number)
	}
	*to = string(f.Value)
	return nil
}

func appendText(b []byte, n protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), text)
}

func appendInt(b []byte, n protowire.Number, value int64) []byte {
	if value == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(value))
}
