package xdstest

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// stream is a proxy between the wire and the server on one ADS stream: it records, stalls and edits
// messages.
type stream struct {
	grpc.ServerStream
	faults   *Faults
	recorder *Recorder
	id       uint64
	// broken receives the error that ends the stream.
	broken chan error
}

func newStream(faults *Faults, recorder *Recorder, id uint64, wire grpc.ServerStream) *stream {
	return &stream{
		ServerStream: wire,
		faults:       faults,
		recorder:     recorder,
		id:           id,
		broken:       make(chan error, 1),
	}
}

// breakWith ends the stream unless it has ended.
func (s *stream) breakWith(err error) {
	select {
	case s.broken <- err:
	default:
	}
}

// RecvMsg is called by the server to read a request, which is recorded.
func (s *stream) RecvMsg(m any) error {
	if err := s.faults.reads.pass(s.Context()); err != nil {
		return err
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	// The gate may have been shut while RecvMsg waited.
	if err := s.faults.reads.pass(s.Context()); err != nil {
		return err
	}
	var recorded Request
	switch req := concrete(m).(type) {
	case *discoverypb.DiscoveryRequest:
		recorded = newRequest(s.id, proto.CloneOf(req))
	case *discoverypb.DeltaDiscoveryRequest:
		recorded = newDeltaRequest(s.id, proto.CloneOf(req))
	default:
		return nil
	}
	s.recorder.add(recorded)
	if hook := s.faults.current().onRequest; hook != nil {
		return hook(recorded)
	}
	return nil
}

// concrete returns the message that the server receives into, if it wraps that in one of its own.
func concrete(m any) any {
	if message, ok := m.(proto.Message); ok {
		return message.ProtoReflect().Interface()
	}
	return m
}

// SendMsg is called by the server to send a response.
func (s *stream) SendMsg(m any) error {
	if err := s.faults.sends.pass(s.Context()); err != nil {
		return err
	}
	switch resp := m.(type) {
	case *discoverypb.DiscoveryResponse:
		m = edit(s, resp, s.faults.current().onResponse)
	case *discoverypb.DeltaDiscoveryResponse:
		m = edit(s, resp, s.faults.current().onDeltaResponse)
	}
	if m == nil {
		return nil
	}
	return s.ServerStream.SendMsg(m)
}

// response is a SotW or delta response.
type response interface {
	proto.Message
	comparable
}

// edit passes a copy of a response through the hook, if there is one. It returns nil if the hook does.
func edit[Resp response](s *stream, resp Resp, hook func(uint64, Resp) Resp) any {
	if hook == nil {
		return resp
	}
	var none Resp
	if resp = hook(s.id, proto.CloneOf(resp)); resp == none {
		return nil
	}
	return resp
}
