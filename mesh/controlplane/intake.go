package controlplane

import (
	"cmp"
	"slices"

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
	inspected
}

// ProtoReflect implements proto.Message.
func (r *sotwIntake) ProtoReflect() protoreflect.Message { return &r.inspected }

// deltaIntake is the same for delta.
type deltaIntake struct {
	*discoverypb.DeltaDiscoveryRequest
	inspected
}

// ProtoReflect implements proto.Message.
func (r *deltaIntake) ProtoReflect() protoreflect.Message { return &r.inspected }

// receive returns the next request of a stream.
func (p *sotw) receive(wire grpc.ServerStream) (*discoverypb.DiscoveryRequest, error) {
	m := new(discoverypb.DiscoveryRequest)
	r := &sotwIntake{m, inspected{Message: m.ProtoReflect(), fields: &sotwFields, stream: p.stream}}
	err := wire.RecvMsg(r)
	return m, cmp.Or(r.err, err)
}

func (p *delta) receive(wire grpc.ServerStream) (*discoverypb.DeltaDiscoveryRequest, error) {
	m := new(discoverypb.DeltaDiscoveryRequest)
	r := &deltaIntake{m, inspected{Message: m.ProtoReflect(), fields: &deltaFields, stream: p.stream}}
	err := wire.RecvMsg(r)
	return m, cmp.Or(r.err, err)
}

// requestFields are the numbers of the fields of a request that are limited: the node, and the lists of names, locators and versions,
// each by itself: a client may list the names beside the locators, and what it leaves beside what it joins.
type requestFields struct {
	node  protowire.Number
	lists []protowire.Number
}

var (
	sotwFields  = requestFields{node: 2, lists: []protowire.Number{3, 7}}
	deltaFields = requestFields{node: 1, lists: []protowire.Number{3, 4, 5, 8, 9}}
)

// inspected is a request whose bytes are inspected before they are decoded.
type inspected struct {
	protoreflect.Message
	fields *requestFields
	stream *stream
	// err is why the request is refused.
	err error
}

// inspect returns an error if the request exceeds a limit, and waits until it may be decoded. It leaves errors in the encoding to the
// decoder.
func (m *inspected) inspect(data []byte) error {
	var lengths [10]int // of the lists, by number
	all := 0
	for rest := data; len(rest) > 0; {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			break
		}
		switch {
		case number == m.fields.node && n-protowire.SizeTag(number) > bounds.NodeSize:
			return status.Errorf(codes.ResourceExhausted, "the node has %d bytes, the xDS server accepts %d: shorten its metadata",
				n-protowire.SizeTag(number), bounds.NodeSize)
		case slices.Contains(m.fields.lists, number):
			lengths[number]++
			all++
		}
		rest = rest[n:]
	}
	if longest := slices.Max(lengths[:]); longest > m.stream.usage.maxNames {
		return m.stream.usage.tooManyNames(longest)
	}
	return m.stream.arrived(len(data), all)
}

// ProtoMethods implements protoreflect.Message. The decoder of the message itself, which is given no other one, is
// called by its own methods; all else goes by reflection.
func (m *inspected) ProtoMethods() *protoiface.Methods {
	own := m.Message.ProtoMethods()
	return &protoiface.Methods{
		Flags: own.Flags,
		Unmarshal: func(in protoiface.UnmarshalInput) (protoiface.UnmarshalOutput, error) {
			if m.err = m.inspect(in.Buf); m.err != nil {
				// Not decoded, and no error here: gRPC would end the stream with INTERNAL.
				return protoiface.UnmarshalOutput{Flags: protoiface.UnmarshalInitialized}, nil
			}
			in.Message = m.Message
			return own.Unmarshal(in)
		},
	}
}

const (
	// smallRequest is the size up to which requests are decoded at once: most ACKs.
	smallRequest = 4 << 10
	// largeRequest is the size from which one request of a peer is decoded and carried out at a time. Less than this can
	// arrive on a stream before the server takes it.
	largeRequest = 64 << 10
	// decodedName is about what a name of a decoded request takes beside its bytes, with its topic.
	decodedName = 150
)

// carriedOut is a request while it is decoded and carried out. One that is not small waits for its turn with its bytes, and is
// decoded then:
//
//	4,950 requests of 1,000 names wait     99 MB
//	the same, decoded, with their topics   700 MB
type carriedOut struct {
	// size is about its size in memory.
	size int64
	// held is what of ofRequests it has.
	held           int64
	entered, large bool
	// report calls Options.OnACK or OnNACK, and may be nil.
	report func()
}

// arrived waits until a request with these bytes and names may be decoded, or returns RESOURCE_EXHAUSTED.
func (s *stream) arrived(size, names int) error {
	s.request.size = int64(size + names*decodedName)
	if size < smallRequest {
		return nil
	}
	if size >= largeRequest {
		if err := s.hold(int64(size)); err != nil {
			return err
		}
		s.usage.peer.large.Lock()
		s.request.large = true
	}
	s.enter()
	return nil
}

// hold counts bytes of the request. A single request must be possible, whatever its size.
func (s *stream) hold(size int64) error {
	size = s.usage.atMost(ofRequests, size)
	err := s.usage.take(ofRequests, size)
	if err == nil {
		s.request.held += size
	}
	return err
}

// enter begins the turn of the reader among the streams of its peer, unless it has begun.
func (s *stream) enter() {
	if !s.request.entered {
		s.usage.peer.enter()
		s.request.entered = true
	}
}

// stepAside ends the turn for a function of the options that may take some time. The request counts meanwhile, as many others may
// do the same. It does nothing unless there is such a function.
func (s *stream) stepAside(may bool) error {
	if !may || !s.request.entered {
		return nil
	}
	s.leaveTurn()
	return s.hold(s.request.size)
}

func (s *stream) leaveTurn() {
	if s.request.entered {
		s.usage.peer.leave()
		s.request.entered = false
	}
}

// leave ends all that the request holds, and reports its answer.
func (s *stream) leave() {
	s.leaveTurn()
	if s.request.large {
		s.usage.peer.large.Unlock()
	}
	s.usage.give(ofRequests, s.request.held)
	report := s.request.report
	s.request = carriedOut{}
	if report != nil {
		report()
	}
}
