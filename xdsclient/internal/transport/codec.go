package transport

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// buffers has buffers for messages. gRPC's own pool has none between 32 KiB and 1 MiB, which
// is the size of responses with hundreds of resources.
var buffers = mem.NewTieredBufferPool(256, 4<<10, 16<<10, 64<<10, 128<<10, 256<<10, 512<<10, MaxPooled)

// MaxPooled is the size of the largest messages whose memory is used again. The receiver of a larger one may keep
// its bytes.
const MaxPooled = 1 << 20

// A Frame is a received message, serialized.
type Frame struct{ buffer mem.Buffer }

// Bytes returns the message. It is valid until Free, or for good if it is larger than MaxPooled.
func (f *Frame) Bytes() []byte { return f.buffer.ReadOnlyData() }

// Free returns the memory of the message to the pool.
func (f *Frame) Free() { f.buffer.Free() }

// Codec passes messages through as bytes, which ADS and LRS read and write themselves. On
// the wire it is the protobuf codec. A sent message belongs to gRPC.
type Codec struct{}

// Name implements encoding.CodecV2.
func (Codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2. v is a []byte, made by the function Marshal.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("xdsclient: cannot send a %T", v)
	}
	return mem.BufferSlice{mem.NewBuffer(&message, buffers)}, nil
}

// Marshal serializes a message to be sent, with room for so many more bytes: memory that append allocates would be of no
// size that is used again. The bytes must not be used after they were sent, as their memory is used again.
func Marshal(m proto.Message, more int) ([]byte, error) {
	buffer := buffers.Get(proto.Size(m) + more)
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*buffer)[:0], m)
}

// Unmarshal implements encoding.CodecV2. v is a *Frame.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*Frame)
	if !ok {
		return fmt.Errorf("xdsclient: cannot receive a %T", v)
	}
	if data.Len() > MaxPooled {
		f.buffer = mem.SliceBuffer(data.Materialize())
	} else {
		f.buffer = data.MaterializeToBuffer(buffers)
	}
	return nil
}
