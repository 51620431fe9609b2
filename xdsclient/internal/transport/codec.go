package transport

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// buffers has buffers for messages. gRPC's own pool has none between 32 KiB and 1 MiB, which
// is the size of responses with hundreds of resources.
var buffers = mem.NewTieredBufferPool(256, 4<<10, 16<<10, 64<<10, 128<<10, 256<<10, 512<<10, MaxPooled)

// MaxPooled is the size of the largest messages whose memory is used again. The receiver of a larger one may keep
// its bytes.
const MaxPooled = 1 << 20

// Codec passes messages through as bytes, which ADS and LRS read and write themselves. On
// the wire it is the protobuf codec. A sent message belongs to gRPC.
type Codec struct{}

// Name implements encoding.CodecV2.
func (Codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2. v is a []byte, made by the function Marshal.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	message := v.([]byte)
	return mem.BufferSlice{mem.NewBuffer(&message, buffers)}, nil
}

// Marshal serializes a message to be sent, with room for so many more bytes: memory that append allocates would be of no
// size that is used again. The bytes must not be used after they were sent, as their memory is used again.
func Marshal(m proto.Message, more int) ([]byte, error) {
	buffer := buffers.Get(proto.Size(m) + more)
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*buffer)[:0], m)
}

// Unmarshal implements encoding.CodecV2. v is a *mem.Buffer. The bytes are valid until it is freed, or for good if they are more than
// MaxPooled.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	message := v.(*mem.Buffer)
	if data.Len() > MaxPooled {
		*message = mem.SliceBuffer(data.Materialize())
	} else {
		*message = data.MaterializeToBuffer(buffers)
	}
	return nil
}
