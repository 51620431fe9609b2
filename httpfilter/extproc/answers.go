package extproc

import (
	"errors"
	"fmt"
	"io"
	"math"

	procpb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// read handles what the processor sends until its stream ends.
func (s *stream) read(side grpc.ClientStream) {
	defer s.cancelSide()
	for {
		response := new(procpb.ProcessingResponse)
		err := side.RecvMsg(response)
		s.mu.Lock()
		switch {
		case s.left || s.last != nil && !s.last.asked: // the processor has no say any more
		case err == io.EOF && (s.drainsAll || s.flows[requests].drained() && s.flows[responses].drained()):
			s.leave(nil, "passed", nil)
		case err == io.EOF:
			s.fail(errors.New("its stream has ended without a drain"))
		case err != nil:
			s.fail(err)
		case !s.observe:
			if err = s.handle(response); err != nil {
				s.fail(err)
			}
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// handle carries out a message of the processor. An error says what is wrong with the message. The caller holds mu.
func (s *stream) handle(r *procpb.ProcessingResponse) error {
	defer s.changed.Broadcast()
	w := r.GetServerWindowUpdate()
	for d, n := range [directions]int64{w.GetWindowIncrementDownstreamToSidestream(), w.GetWindowIncrementUpstreamToSidestream()} {
		if n < 0 {
			return errors.New("server_window_update: an increment must not be negative")
		}
		f := &s.flows[d]
		f.window = min(f.window, math.MaxInt64-n) + n
	}
	var err error
	switch r.GetResponse().(type) {
	case *procpb.ProcessingResponse_RequestHeaders:
		h := r.GetRequestHeaders().GetResponse()
		err = s.answer(requestHeaders, h.GetStatus(), h.GetHeaderMutation())
	case *procpb.ProcessingResponse_ResponseHeaders:
		h := r.GetResponseHeaders().GetResponse()
		err = s.answer(responseHeaders, h.GetStatus(), h.GetHeaderMutation())
	case *procpb.ProcessingResponse_ResponseTrailers:
		err = s.answer(responseTrailers, procpb.CommonResponse_CONTINUE, r.GetResponseTrailers().GetHeaderMutation())
	case *procpb.ProcessingResponse_RequestBody:
		err = s.enqueue(requests, requestHeaders, r.GetRequestBody().GetResponse())
	case *procpb.ProcessingResponse_ResponseBody:
		err = s.enqueue(responses, responseHeaders, r.GetResponseBody().GetResponse())
	case *procpb.ProcessingResponse_ImmediateResponse:
		err = s.immediate(r.GetImmediateResponse())
	}
	//lint:ignore SA1019 gRFC A93 names it
	all := r.GetRequestDrain()
	s.drain(requests, r.GetRequestDrainRequests(), all)
	s.drain(responses, r.GetRequestDrainResponses(), all)
	s.drainsAll = s.drainsAll || all
	return err
}

// drain stops the messages of a direction, alone or with the whole stream. One whose end has been sent drains by itself.
func (s *stream) drain(d direction, alone, all bool) {
	f := &s.flows[d]
	if f.passage != processed || f.lastSent || d == responses && s.last != nil || !alone && !all {
		return
	}
	f.passage = draining
	if !all {
		s.outbox = append(s.outbox, bodyRequest(d, &procpb.HttpBody{DrainComplete: true}))
	}
}

func (s *stream) answer(k kind, status procpb.CommonResponse_ResponseStatus, m *procpb.HeaderMutation) error {
	switch {
	case status != procpb.CommonResponse_CONTINUE:
		return fmt.Errorf("%v.response.status: must be CONTINUE, is %v", k, status)
	case k == responseTrailers && s.events[responseHeaders].asked:
		return fmt.Errorf("%v: comes before %v", k, responseHeaders)
	case !s.events[k].asked:
		return fmt.Errorf("%v: nothing was asked", k)
	}
	return s.settle(&s.events[k], m)
}

func (s *stream) settle(e *event, m *procpb.HeaderMutation) (err error) {
	e.edits, err = s.rules.Edits(m.GetSetHeaders(), m.GetRemoveHeaders())
	e.asked = err != nil
	return err
}

// enqueue puts a message of the processor into the queue. It must come after the answer to before.
func (s *stream) enqueue(d direction, before kind, r *procpb.CommonResponse) error {
	f, b := &s.flows[d], r.GetBodyMutation().GetStreamedResponse()
	switch {
	case r.GetStatus() != procpb.CommonResponse_CONTINUE:
		return fmt.Errorf("%v.response.status: must be CONTINUE, is %v", d, r.GetStatus())
	case f.passage == passing:
		return fmt.Errorf("%v: nothing was asked", d)
	case s.events[before].asked:
		return fmt.Errorf("%v: comes before %v", d, before)
	case f.ended:
		return fmt.Errorf("%v: comes after the end", d)
	case b == nil:
		return nil
	case b.GetGrpcMessageCompressed():
		return fmt.Errorf("%v: grpc_message_compressed is not supported", d)
	case d == responses && b.GetEndOfStream():
		return fmt.Errorf("%v: must not have end_of_stream", d)
	case b.GetDrainComplete() && f.passage != draining:
		return fmt.Errorf("%v: drain_complete comes before that of the filter", d)
	case f.credit <= 0 && (!s.drainsAll || f.waiting() > maxDrained), len(f.queue) > windowSize: // empty messages need no credit
		return fmt.Errorf("%v: more than flow control allows", d)
	}
	n := int64(len(b.GetBody()))
	f.credit -= n
	i := item{end: b.GetEndOfStream(), cost: n}
	if !(i.end && b.GetEndOfStreamWithoutMessage()) && !(b.GetDrainComplete() && n == 0) {
		i.body = (*grpcbridge.Encoded)(&b.Body)
	}
	if i.body != nil || i.end {
		f.put(i)
	}
	if b.GetDrainComplete() {
		f.passage = passing
	}
	return nil
}

// immediate ends the RPC, or chooses its status and trailers if it answers these.
func (s *stream) immediate(r *procpb.ImmediateResponse) error {
	if s.noImmediate {
		return errors.New("immediate_response: is disabled by disable_immediate_response")
	}
	code := codes.Internal // An answer that names no code is not OK, as it may refuse the RPC.
	if r.GetGrpcStatus() != nil {
		code = codes.Code(r.GetGrpcStatus().GetStatus())
	}
	if code > codes.Unauthenticated {
		code = codes.Unknown
	}
	err := error(io.EOF)
	if code != codes.OK {
		err = status.Error(code, bounds.Text(r.GetDetails(), bounds.ErrorText))
	}
	if s.last != nil {
		s.final = err
		return s.settle(s.last, r.GetHeaders())
	}
	s.leave(err, "ended", err)
	return nil
}
