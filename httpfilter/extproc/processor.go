package extproc

import (
	"io"
	"time"

	filterpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	procpb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter/internal/sidechannel"
	"github.com/dynxds/dynxds/internal/filterchain"
	"github.com/dynxds/dynxds/internal/headeredit"
	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// method is the processor's.
const method = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"

var desc = &grpc.StreamDesc{StreamName: "Process", ClientStreams: true, ServerStreams: true}

// kind of an event that the processor answers once.
type kind int

const (
	requestHeaders kind = iota
	responseHeaders
	responseTrailers
	kinds
)

func (k kind) String() string {
	return [kinds]string{"request_headers", "response_headers", "response_trailers"}[k]
}

// event is one that the processor answers.
type event struct {
	asked bool // and not answered
	edits headeredit.Edits
}

// wait waits until done holds, and reports false if the RPC ends instead. The caller holds mu.
func (s *stream) wait(done func() bool) bool {
	for s.err == nil && s.ctx.Err() == nil {
		if done() {
			return true
		}
		s.changed.Wait()
	}
	return false
}

// await is wait for callers without mu.
func (s *stream) await(done func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wait(done)
}

// passes reports whether messages of a direction pass without the processor. The caller holds mu.
func (s *stream) passes(d direction) bool { return s.left || s.flows[d].passage == passing }

// send puts an event for the processor into the outbox, the first one of a direction with attributes, and reports whether it has. send waits
// until the events before have left, since no window bounds what is observed, and messages without bytes. The caller holds mu.
func (s *stream) send(d direction, request *procpb.ProcessingRequest) bool {
	s.wait(func() bool { return len(s.outbox) == 0 || s.left })
	if s.left || s.drainsAll {
		return false
	}
	request.ObservabilityMode = s.observe
	request.Attributes, s.attributes[d] = s.attributes[d], nil
	if !s.opened {
		s.opened = true
		request.ProtocolConfig = &procpb.ProtocolConfiguration{RequestBodyMode: s.bodyMode(requests), ResponseBodyMode: s.bodyMode(responses)}
		if !s.observe {
			request.FlowControlInit = &procpb.ProcessingRequest_FlowControlInit{
				InitialWindowDownstreamToSidestream: windowSize, InitialWindowSidestreamToUpstream: windowSize,
				InitialWindowUpstreamToSidestream: windowSize, InitialWindowSidestreamToDownstream: windowSize,
			}
		}
		go s.write()
	}
	s.outbox = append(s.outbox, request)
	s.changed.Broadcast()
	return true
}

func (s *stream) bodyMode(d direction) filterpb.ProcessingMode_BodySendMode {
	if s.sends.bodies[d] {
		return filterpb.ProcessingMode_GRPC
	}
	return filterpb.ProcessingMode_NONE
}

// ask sends headers or trailers, which the processor answers if it does not observe. After the last event there is none but the answer.
func (s *stream) ask(k kind, md metadata.MD, last bool) {
	if !s.sends.events[k] {
		return
	}
	d, request, shown := responses, new(procpb.ProcessingRequest), sidechannel.HeaderMap(md, s.forward.Shows)
	switch k {
	case requestHeaders:
		d, request.Request = requests, &procpb.ProcessingRequest_RequestHeaders{RequestHeaders: &procpb.HttpHeaders{Headers: shown}}
	case responseHeaders:
		request.Request = &procpb.ProcessingRequest_ResponseHeaders{ResponseHeaders: &procpb.HttpHeaders{Headers: shown, EndOfStream: last}}
	case responseTrailers:
		request.Request = &procpb.ProcessingRequest_ResponseTrailers{ResponseTrailers: &procpb.HttpTrailers{Trailers: shown}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events[k].asked = s.send(d, request) && !s.observe
	if last {
		s.last = &s.events[k]
	}
}

// answered waits for the answer to an event that was asked, and returns the answer's edits.
func (s *stream) answered(k kind) headeredit.Edits {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &s.events[k]
	s.wait(func() bool { return !e.asked || s.left })
	return e.edits
}

// through takes a message or the end of the requests on its way: to the processor, when the window allows that, or past the processor, behind
// what the processor has sent. After the processor has ended the requests, more of them are discarded. A processor that observes gets a copy.
// through reports false if the RPC has ended, even if the application does not know that yet.
func (s *stream) through(d direction, b *procpb.HttpBody) bool {
	f := &s.flows[d]
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.GetEndOfStream() && s.halfClosed.IsZero() {
		s.halfClosed = time.Now()
	}
	goes := s.wait(func() bool {
		switch {
		case f.ended || f.lastSent || f.refused:
			return true
		case !s.left && f.passage == processed:
			return len(s.outbox) == 0 && (f.window > 0 || b.GetEndOfStreamWithoutMessage())
		}
		return s.passes(d) && len(f.queue) == 0
	})
	switch {
	case !goes || f.ended || f.lastSent || f.refused:
	case s.passes(d):
		if s.observe {
			s.send(d, bodyRequest(d, b))
		}
		f.pass(b)
		s.changed.Broadcast()
	default:
		f.window -= int64(len(b.GetBody()))
		f.lastSent = b.GetEndOfStream()
		s.send(d, bodyRequest(d, b))
	}
	return goes && !f.refused
}

func bodyRequest(d direction, b *procpb.HttpBody) *procpb.ProcessingRequest {
	if d == requests {
		return &procpb.ProcessingRequest{Request: &procpb.ProcessingRequest_RequestBody{RequestBody: b}}
	}
	return &procpb.ProcessingRequest{Request: &procpb.ProcessingRequest_ResponseBody{ResponseBody: b}}
}

// write opens the stream to the processor, and sends the outbox until next returns nil.
func (s *stream) write() {
	side, err := s.channel.NewStream(s.sideCtx, desc, method)
	if err != nil {
		s.mu.Lock()
		s.fail(err)
		s.mu.Unlock()
		return
	}
	go s.read(side)
	for request := s.next(); request != nil; request = s.next() {
		_ = side.SendMsg(request) // if it fails, read has the status
	}
	if s.sideCtx.Err() == nil && (s.observe || s.app.Err() == nil) { // Otherwise the stream is cancelled, now or at once.
		_ = side.CloseSend()
	}
}

// next waits for the next message to the processor, and adds the window update that is due. It returns nil after the last message.
func (s *stream) next() *procpb.ProcessingRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	var request *procpb.ProcessingRequest
	up, down := &s.flows[requests], &s.flows[responses]
	for request == nil {
		switch {
		case len(s.outbox) > 0:
			request, s.outbox = s.outbox[0], s.outbox[1:]
			s.sentBodies = s.sentBodies || request.GetRequestBody() != nil || request.GetResponseBody() != nil
			s.changed.Broadcast()
		case s.left || s.drainsAll || s.ctx.Err() != nil:
			return nil
		case up.owes() || down.owes():
			request = new(procpb.ProcessingRequest)
		default:
			s.changed.Wait()
		}
	}
	if up, down := up.tell(), down.tell(); up+down > 0 {
		request.ClientWindowUpdate = &procpb.ProcessingRequest_ClientWindowUpdate{
			WindowIncrementSidestreamToUpstream: up, WindowIncrementSidestreamToDownstream: down,
		}
	}
	return request
}

// ended runs when the RPC has ended. The processor may still read what it was sent, but not for long (gRFC A93,
// "deferred_close_timeout"), unless the application has cancelled the RPC: that cancels the stream too.
func (s *stream) ended() {
	s.mu.Lock()
	opened := s.opened
	s.changed.Broadcast()
	s.mu.Unlock()
	if opened {
		_ = retries.Wait(s.sideCtx, s.deferred)
	}
	s.cancelSide()
}

// leave ends what the processor has to do with the RPC, which ends with err, or goes on if that is nil. The trace is told of the decision and
// why, without mu; an empty decision is none of the filter's. The caller holds mu.
func (s *stream) leave(err error, decision string, why error) {
	if s.left {
		return
	}
	s.left, s.err = true, err
	if decision != "" && rpctrace.FromContext(s.app) != nil {
		if why == io.EOF {
			why = nil
		}
		s.telling.Go(func() { filterchain.Decided(s.app, s.Name, decision, why) })
	}
	for len(s.outbox) > 0 && !s.observe { // What the processor was not sent goes on without it.
		if b := s.outbox[0].GetRequestBody(); b != nil {
			s.flows[requests].pass(b)
		} else if b := s.outbox[0].GetResponseBody(); b != nil {
			s.flows[responses].pass(b)
		}
		s.outbox = s.outbox[1:]
	}
	if f := &s.flows[requests]; f.lastSent && !f.ended {
		f.put(item{end: true}) // A processor that drains need not send the end back.
	}
	if err != nil {
		s.cancel()
	}
	s.changed.Broadcast()
}

// fail is what becomes of an RPC whose processor fails (gRFC A93, "Early Termination of ext_proc Stream"). The caller holds mu.
func (s *stream) fail(err error) {
	err = sidechannel.Bounded(err)
	defer s.cancelSide() // before write, which waits for mu, can half-close the stream
	switch ended := sidechannel.Ended(s.app); {
	case ended != nil:
		s.leave(ended, "", nil)
	case s.allowFailed && (s.observe || !s.sentBodies):
		s.leave(nil, "failed_open", err)
	default:
		s.leave(status.Errorf(codes.Internal, "ext_proc: the processor has failed: %v", err), "failed", err)
	}
}
