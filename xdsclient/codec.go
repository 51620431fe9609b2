package xdsclient

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// frame is a message in serialized form.
type frame struct {
	buffer mem.Buffer
}

// bytes returns the message. It is valid until free.
func (f *frame) bytes() []byte { return f.buffer.ReadOnlyData() }

func (f *frame) free() { f.buffer.Free() }

// rawCodec hands messages through as bytes, for a protocol variant to read and
// write. On the wire it is the protobuf codec.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("xdsclient: cannot send a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(message)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("xdsclient: cannot receive a %T", v)
	}
	f.buffer = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return nil
}
