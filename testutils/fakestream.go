package testutils

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// fakeStream stands between the wire and the control plane on one ADS stream:
// it records, stalls, edits and injects.
type fakeStream struct {
	grpc.ServerStream
	server *FakeServer
	id     uint64
	// broken takes the error that ends the stream.
	broken chan error

	// sending serialises the control plane's sends with injected ones.
	sending sync.Mutex

	mu sync.Mutex
	// nonces are the last that the control plane sent, by type.
	nonces map[string]string
	// injected are the nonces of hand-made responses.
	injected map[string]struct{}
}

func newFakeStream(server *FakeServer, id uint64, wire grpc.ServerStream) *fakeStream {
	return &fakeStream{
		ServerStream: wire,
		server:       server,
		id:           id,
		broken:       make(chan error, 1),
		nonces:       map[string]string{},
		injected:     map[string]struct{}{},
	}
}

// breakWith ends the stream, if nothing else has yet.
func (s *fakeStream) breakWith(err error) {
	select {
	case s.broken <- err:
	default:
	}
}

// RecvMsg is the control plane reading a request.
func (s *fakeStream) RecvMsg(m any) error {
	for {
		if err := s.receive(m); err != nil {
			return err
		}
		if !s.dropped(m) {
			s.hideInjected(m)
			return nil
		}
	}
}

// receive reads the next request and records it.
func (s *fakeStream) receive(m any) error {
	if err := s.server.reads.pass(s.Context()); err != nil {
		return err
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	// The door may have been shut while RecvMsg waited for this request.
	if err := s.server.reads.pass(s.Context()); err != nil {
		return err
	}
	var recorded Request
	switch req := m.(type) {
	case *discoverypb.DiscoveryRequest:
		recorded = newRequest(s.id, proto.CloneOf(req))
	case *discoverypb.DeltaDiscoveryRequest:
		recorded = newDeltaRequest(s.id, proto.CloneOf(req))
	default:
		return nil
	}
	s.server.recorder.add(recorded)
	if hook := s.server.requestHook(); hook != nil {
		return hook(recorded)
	}
	return nil
}

// dropped reports whether the control plane is not to see a request: see
// FakeServer.DropStaleRequests.
func (s *fakeStream) dropped(m any) bool {
	req, ok := m.(*discoverypb.DeltaDiscoveryRequest)
	if !ok || !s.server.dropsStale() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	nonce := req.GetResponseNonce()
	return nonce != "" && (nonce != s.nonces[req.GetTypeUrl()] || req.GetErrorDetail() != nil)
}

// hideInjected turns the answer to a hand-made response into a plain
// subscription: the SotW control plane, which never sent that nonce, would have
// to ignore the request, and all that follow.
func (s *fakeStream) hideInjected(m any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch req := m.(type) {
	case *discoverypb.DiscoveryRequest:
		if _, ok := s.injected[req.GetResponseNonce()]; ok {
			req.ResponseNonce = s.nonces[req.GetTypeUrl()]
			req.VersionInfo = ""
			req.ErrorDetail = nil
		}
	case *discoverypb.DeltaDiscoveryRequest:
		if _, ok := s.injected[req.GetResponseNonce()]; ok {
			req.ResponseNonce = ""
			req.ErrorDetail = nil
		}
	}
}

// SendMsg is the control plane sending a response.
func (s *fakeStream) SendMsg(m any) error {
	if err := s.server.sends.pass(s.Context()); err != nil {
		return err
	}
	switch resp := m.(type) {
	case *discoverypb.DiscoveryResponse:
		s.mu.Lock()
		s.nonces[resp.GetTypeUrl()] = resp.GetNonce()
		s.mu.Unlock()
		if resp = edit(s.id, resp, s.server.responseHook()); resp == nil {
			return nil
		}
		m = resp
	case *discoverypb.DeltaDiscoveryResponse:
		s.mu.Lock()
		s.nonces[resp.GetTypeUrl()] = resp.GetNonce()
		s.mu.Unlock()
		if resp = edit(s.id, resp, s.server.deltaResponseHook()); resp == nil {
			return nil
		}
		m = resp
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.ServerStream.SendMsg(m)
}

// edit passes a copy of the response through the hook, if there is one.
func edit[Resp proto.Message](stream uint64, resp Resp, hook func(uint64, Resp) Resp) Resp {
	if hook == nil {
		return resp
	}
	return hook(stream, proto.CloneOf(resp))
}

// inject sends m past the control plane and the doors.
func (s *fakeStream) inject(m proto.Message) error {
	if resp, ok := m.(interface{ GetNonce() string }); ok && resp.GetNonce() != "" {
		s.mu.Lock()
		s.injected[resp.GetNonce()] = struct{}{}
		s.mu.Unlock()
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.ServerStream.SendMsg(m)
}
