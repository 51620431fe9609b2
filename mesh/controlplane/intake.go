package controlplane

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/runtime/protoiface"

	"github.com/dynxds/dynxds/internal/bounds"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// A decoded request takes up to ten times its size: a map entry of 9 bytes for one of
// initial_resource_versions. So a request is inspected on the wire, and decoded only if it is within the limits.

// sotwIntake is a DiscoveryRequest that is inspected before it is decoded. To interceptors and stats handlers of
// the gRPC server it has the request's methods.
type sotwIntake struct {
	*discoverypb.DiscoveryRequest
	inspection
}

// ProtoReflect implements proto.Message.
func (r *sotwIntake) ProtoReflect() protoreflect.Message {
	return &inspected{r.DiscoveryRequest.ProtoReflect(), &r.inspection}
}

// deltaIntake is the same for delta.
type deltaIntake struct {
	*discoverypb.DeltaDiscoveryRequest
	inspection
}

// ProtoReflect implements proto.Message.
func (r *deltaIntake) ProtoReflect() protoreflect.Message {
	return &inspected{r.DeltaDiscoveryRequest.ProtoReflect(), &r.inspection}
}

// receive returns the next request of a stream.
func (p *sotw) receive(wire grpc.ServerStream) (*discoverypb.DiscoveryRequest, error) {
	r := &sotwIntake{new(discoverypb.DiscoveryRequest), inspection{fields: &sotwFields, stream: p.stream}}
	return r.DiscoveryRequest, r.receive(wire, r)
}

func (p *delta) receive(wire grpc.ServerStream) (*discoverypb.DeltaDiscoveryRequest, error) {
	r := &deltaIntake{new(discoverypb.DeltaDiscoveryRequest), inspection{fields: &deltaFields, stream: p.stream}}
	return r.DeltaDiscoveryRequest, r.receive(wire, r)
}

// requestFields are the numbers of the fields of a request that are limited: node, names (or locators), and
// versions.
type requestFields struct {
	node     protowire.Number
	names    []protowire.Number
	versions protowire.Number
}

var (
	sotwFields  = requestFields{node: 2, names: []protowire.Number{3, 7}}
	deltaFields = requestFields{node: 1, names: []protowire.Number{3, 4, 8, 9}, versions: 5}
)

// inspection is the inspection of one request.
type inspection struct {
	fields *requestFields
	stream *stream
	// err is why the request is refused.
	err error
}

func (i *inspection) receive(wire grpc.ServerStream, m any) error {
	err := wire.RecvMsg(m)
	if i.err != nil {
		return i.err
	}
	return err
}

// inspect sets err, and returns it, if the request exceeds a limit. It leaves faults in the encoding to the decoder.
func (i *inspection) inspect(data []byte) error {
	var names, versions int
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil
		}
		size := protowire.ConsumeFieldValue(number, kind, data[n:])
		if size < 0 {
			return nil
		}
		switch {
		case number == i.fields.node && size > bounds.NodeSize:
			i.err = status.Errorf(codes.ResourceExhausted, "the node has %d bytes, the xDS server accepts %d: shorten its metadata", size, bounds.NodeSize)
			return i.err
		case number == i.fields.versions:
			versions++
		default:
			for _, of := range i.fields.names {
				if number == of {
					names++
				}
			}
		}
		data = data[n+size:]
	}
	if most := i.stream.limits.names; names > most || versions > most {
		i.err = i.stream.tooManyNames(max(names, versions))
	}
	return i.err
}

// inspected is a message whose bytes are inspected before they are decoded.
type inspected struct {
	protoreflect.Message
	of *inspection
}

// ProtoMethods implements protoreflect.Message. The decoder of the message itself, which is given no other one, is
// called by its own methods; all else goes by reflection.
func (m *inspected) ProtoMethods() *protoiface.Methods {
	own := m.Message.ProtoMethods()
	return &protoiface.Methods{
		Flags: own.Flags,
		Unmarshal: func(in protoiface.UnmarshalInput) (protoiface.UnmarshalOutput, error) {
			if m.of.inspect(in.Buf) != nil {
				// Not decoded, and no error here: gRPC would end the stream with INTERNAL.
				return protoiface.UnmarshalOutput{Flags: protoiface.UnmarshalInitialized}, nil
			}
			for _, l := range m.of.stream.queueFor(len(in.Buf)) {
				l.Lock()
				defer l.Unlock()
			}
			in.Message = m.Message
			return own.Unmarshal(in)
		},
		CheckInitialized: func(in protoiface.CheckInitializedInput) (protoiface.CheckInitializedOutput, error) {
			in.Message = m.Message
			return own.CheckInitialized(in)
		},
	}
}

// largeRequest is the size of requests of which one peer's are decoded one at a time.
const largeRequest = 64 << 10

func (s *stream) queueFor(size int) []sync.Locker {
	if size < largeRequest {
		return nil
	}
	return s.tab.queue()
}
