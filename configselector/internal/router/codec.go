package router

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// encoded is a message as it goes on the wire, before compression. A message is encoded
// before SendMsg returns, since the application may reuse it.
type encoded []byte

// encode encodes a message. If it cannot, gRPC, which gets the message too, reports why.
func encode(codec encoding.CodecV2, m any) (e encoded, ok bool) {
	if _, prepared := m.(*grpc.PreparedMsg); prepared || codec == nil {
		return nil, false
	}
	buffers, err := codec.Marshal(m)
	if err != nil {
		return nil, false
	}
	defer buffers.Free()
	return buffers.Materialize(), true
}

// resend is a codec that sends encoded messages as they are. It leaves other messages, and received ones, to the
// wrapped codec.
type resend struct {
	encoding.CodecV2
	subtype string // in the content-type of the RPC; empty: none
}

// resending returns the option for sending encoded messages on an RPC with the given options. codec is the codec
// of that RPC.
func resending(opts []grpc.CallOption, codec encoding.CodecV2) grpc.CallOption {
	return grpc.ForceCodecV2(resend{codec, grpcbridge.ContentSubtype(opts)})
}

// Name implements encoding.CodecV2. gRPC makes the content-type of the name.
func (c resend) Name() string { return c.subtype }

// Marshal implements encoding.CodecV2.
func (c resend) Marshal(m any) (mem.BufferSlice, error) {
	if e, ok := m.(encoded); ok {
		return mem.BufferSlice{mem.SliceBuffer(e)}, nil
	}
	return c.CodecV2.Marshal(m)
}

// ignored stands for a message whose content is discarded.
type ignored struct{}

// received is a message that is decoded later, if at all.
type received struct{ data mem.BufferSlice }

// Unmarshal implements encoding.CodecV2.
func (c resend) Unmarshal(data mem.BufferSlice, m any) error {
	switch m := m.(type) {
	case ignored:
		return nil
	case *received:
		data.Ref()
		m.data = data
		return nil
	}
	return c.CodecV2.Unmarshal(data, m)
}
