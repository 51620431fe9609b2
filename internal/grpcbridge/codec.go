package grpcbridge

import (
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// CodecOf returns the codec that gRPC will use for the messages of an RPC with the given options, or nil if it has none. Its name
// may be empty: see ContentSubtype.
func CodecOf(opts []grpc.CallOption) encoding.CodecV2 {
	var codec encoding.CodecV2
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.ForceCodecV2CallOption:
			codec = o.CodecV2
		case grpc.ForceCodecCallOption:
			codec = codecV1{o.Codec}
		case grpc.CustomCodecCallOption:
			codec = codecV1{o.Codec}
		}
	}
	if codec != nil {
		return codec
	}
	subtype := ContentSubtype(opts)
	if subtype == "" {
		subtype = "proto"
	}
	if codec = encoding.GetCodecV2(subtype); codec != nil {
		return codec
	}
	if v1 := encoding.GetCodec(subtype); v1 != nil {
		return codecV1{v1}
	}
	return nil
}

// ContentSubtype returns the subtype in the content-type that gRPC will send for call options; empty: none. A codec that stands for
// the one of an RPC has it as its name, so that the content-type stays.
func ContentSubtype(opts []grpc.CallOption) string {
	subtype, codec := "", ""
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.ContentSubtypeCallOption:
			subtype = o.ContentSubtype
		case grpc.ForceCodecCallOption:
			codec = o.Codec.Name()
		case grpc.ForceCodecV2CallOption:
			codec = o.CodecV2.Name()
		case grpc.CustomCodecCallOption:
			codec = ""
		}
	}
	if subtype == "" {
		subtype = codec
	}
	return strings.ToLower(subtype)
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
