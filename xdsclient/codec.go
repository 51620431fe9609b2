package xdsclient

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// framePool has buffers for messages. gRPC's own pool has none between 32 KiB and 1 MiB,
// which is where responses with hundreds of resources are; and a pool is emptied by the
// garbage collector.
var framePool = mem.NewTieredBufferPool(256, 4<<10, 16<<10, 64<<10, 128<<10, 256<<10, 512<<10, 1<<20)

// frame is a message in serialized form.
type frame struct {
	buffer mem.Buffer
}

// bytes returns the message. It is valid until free.
func (f *frame) bytes() []byte { return f.buffer.ReadOnlyData() }

func (f *frame) free() { f.buffer.Free() }

// rawCodec hands messages through as bytes, for a protocol variant to read and
// write. On the wire it is the protobuf codec. A message that was sent belongs to gRPC.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("xdsclient: cannot send a %T", v)
	}
	return mem.BufferSlice{mem.NewBuffer(&message, framePool)}, nil
}

// marshal returns a message to be sent, and then to be let go of: its memory serves
// again.
func marshal(m proto.Message) ([]byte, error) {
	buffer := framePool.Get(proto.Size(m))
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*buffer)[:0], m)
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("xdsclient: cannot receive a %T", v)
	}
	f.buffer = data.MaterializeToBuffer(framePool)
	return nil
}
