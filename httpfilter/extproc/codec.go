package extproc

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// body is a serialized message.
type body struct{ data []byte }

// codec passes bodies as they are, and other messages to the codec of the RPC.
type codec struct {
	encoding.CodecV2
	subtype string // in the content-type of the RPC; empty: none
}

// codecOf returns the codec for an RPC. That has none if its CodecV2 is nil.
func codecOf(options []grpc.CallOption) codec {
	return codec{grpcbridge.CodecOf(options), grpcbridge.ContentSubtype(options)}
}

// Name implements encoding.CodecV2. gRPC makes the content-type of the name.
func (c codec) Name() string { return c.subtype }

func (c codec) Marshal(m any) (mem.BufferSlice, error) {
	if b, ok := m.(*body); ok {
		return mem.BufferSlice{mem.SliceBuffer(b.data)}, nil
	}
	return c.CodecV2.Marshal(m)
}

func (c codec) Unmarshal(data mem.BufferSlice, m any) error {
	if b, ok := m.(*body); ok {
		b.data = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, m)
}

// serialize returns a message of the application as the processor sees it.
func (c codec) serialize(m any) (*body, error) {
	data, err := c.Marshal(m)
	if err != nil {
		return nil, err
	}
	defer data.Free()
	return &body{data.Materialize()}, nil
}

func (c codec) deserialize(b *body, m any) error {
	return c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b.data)}, m)
}
