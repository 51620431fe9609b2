package grpcbridge

import (
	"cmp"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// Encoded is a message as it goes on the wire, before compression.
type Encoded []byte

// RawCodec is the codec of an RPC that sends Encoded messages as they are, and receives messages that are decoded later. Other
// messages go to the codec that the RPC would have. The codec's name is the content-subtype that the RPC would have.
type RawCodec struct {
	encoding.CodecV2        // nil: the RPC has none
	subtype          string // empty: none
}

// RawCodecOf returns the codec for an RPC with the given options.
func RawCodecOf(opts []grpc.CallOption) (c RawCodec) {
	name := "" // of the codec that the application has chosen
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.ContentSubtypeCallOption:
			c.subtype = o.ContentSubtype
		case grpc.ForceCodecCallOption:
			c.CodecV2, name = codecV1{o.Codec}, o.Codec.Name()
		case grpc.ForceCodecV2CallOption:
			c.CodecV2, name = o.CodecV2, ""
			if o.CodecV2 != nil { // as if there were no option
				name = o.CodecV2.Name()
			}
		case grpc.CustomCodecCallOption:
			c.CodecV2, name = codecV1{o.Codec}, ""
		}
	}
	c.subtype = strings.ToLower(cmp.Or(c.subtype, name))
	if c.CodecV2 == nil {
		registered := cmp.Or(c.subtype, "proto")
		if c.CodecV2 = encoding.GetCodecV2(registered); c.CodecV2 == nil {
			if v1 := encoding.GetCodec(registered); v1 != nil {
				c.CodecV2 = codecV1{v1}
			}
		}
	}
	return c
}

// Name implements encoding.CodecV2. gRPC makes the content-type of the name.
func (c RawCodec) Name() string { return c.subtype }

// Marshal implements encoding.CodecV2. It takes an Encoded, too.
func (c RawCodec) Marshal(m any) (mem.BufferSlice, error) {
	if e, ok := m.(Encoded); ok {
		return mem.BufferSlice{mem.SliceBuffer(e)}, nil
	}
	return c.CodecV2.Marshal(m)
}

// Unmarshal implements encoding.CodecV2. It takes an *Encoded, nil for a message that is discarded, and a *mem.BufferSlice, which
// gets the message without a copy and has to be freed.
func (c RawCodec) Unmarshal(data mem.BufferSlice, m any) error {
	switch m := m.(type) {
	case *Encoded:
		if m != nil {
			*m = data.Materialize()
		}
		return nil
	case *mem.BufferSlice:
		data.Ref()
		*m = data
		return nil
	}
	return c.CodecV2.Unmarshal(data, m)
}

// Encode encodes a message before SendMsg returns, after which the application may change it.
func (c RawCodec) Encode(m any) (Encoded, error) {
	if _, prepared := m.(*grpc.PreparedMsg); prepared || c.CodecV2 == nil {
		return nil, errors.New("it is prepared, or the RPC has no codec")
	}
	data, err := c.Marshal(m)
	if err != nil {
		return nil, err
	}
	defer data.Free()
	return data.Materialize(), nil
}

// codecV1 adapts an encoding.Codec or a grpc.Codec to encoding.CodecV2. It has no name.
type codecV1 struct {
	codec interface {
		Marshal(any) ([]byte, error)
		Unmarshal([]byte, any) error
	}
}

func (codecV1) Name() string { return "" }

func (c codecV1) Marshal(m any) (mem.BufferSlice, error) {
	b, err := c.codec.Marshal(m)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (c codecV1) Unmarshal(data mem.BufferSlice, m any) error {
	return c.codec.Unmarshal(data.Materialize(), m)
}
