package extproc

import (
	"errors"
	"fmt"
	"io"
	"math"

	procpb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// handle handles a message. An error says what is wrong with it.
func (p *processor) handle(r *procpb.ProcessingResponse) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase != live {
		return nil
	}
	defer p.changed.Broadcast()
	w := r.GetServerWindowUpdate()
	for d, n := range [directions]int64{w.GetWindowIncrementDownstreamToSidestream(), w.GetWindowIncrementUpstreamToSidestream()} {
		if n < 0 {
			return errors.New("server_window_update: an increment must not be negative")
		}
		f := &p.flows[d]
		f.window = min(f.window, math.MaxInt64-n) + n
	}
	var err error
	switch r.GetResponse().(type) {
	case *procpb.ProcessingResponse_RequestHeaders:
		err = p.answerHeaders(requestHeaders, r.GetRequestHeaders())
	case *procpb.ProcessingResponse_ResponseHeaders:
		err = p.answerHeaders(responseHeaders, r.GetResponseHeaders())
	case *procpb.ProcessingResponse_ResponseTrailers:
		if !p.settled(responseHeaders) {
			return errors.New("response_trailers: comes before response_headers")
		}
		err = p.answer(responseTrailers, r.GetResponseTrailers().GetHeaderMutation())
	case *procpb.ProcessingResponse_RequestBody:
		err = p.receive(requests, requestHeaders, r.GetRequestBody().GetResponse())
	case *procpb.ProcessingResponse_ResponseBody:
		err = p.receive(responses, responseHeaders, r.GetResponseBody().GetResponse())
	case *procpb.ProcessingResponse_ImmediateResponse:
		err = p.immediate(r.GetImmediateResponse())
	}
	//lint:ignore SA1019 gRFC A93 names it
	all := r.GetRequestDrain()
	p.drain(requests, r.GetRequestDrainRequests(), all)
	p.drain(responses, r.GetRequestDrainResponses(), all)
	if all && !p.drainsAll {
		p.drainsAll = true
		go p.stop(p.closeSend) // this goroutine has to go on reading, or the processor might stop reading, too
	}
	return err
}

// drain stops the messages of a direction, alone or with the whole stream. One whose end has been sent drains by itself.
func (p *processor) drain(d direction, alone, all bool) {
	f := &p.flows[d]
	if f.passage != processed || f.lastSent || d == responses && p.last != nil || !alone && !all {
		return
	}
	f.passage = stopped
	if !all {
		go p.stop(func() {
			p.mu.Lock()
			f.passage = draining
			p.mu.Unlock()
			p.transmit(bodyRequest(d, &procpb.HttpBody{DrainComplete: true}))
		})
	}
}

// stop runs a step of a drain after the message that is being sent.
func (p *processor) stop(step func()) {
	p.sendMu.Lock()
	defer p.sendMu.Unlock()
	step()
}

func (p *processor) answerHeaders(k kind, r *procpb.HeadersResponse) error {
	if s := r.GetResponse().GetStatus(); s != procpb.CommonResponse_CONTINUE {
		return fmt.Errorf("%v.response.status: must be CONTINUE, is %v", k, s)
	}
	return p.answer(k, r.GetResponse().GetHeaderMutation())
}

// settled reports whether an event has no answer to come.
func (p *processor) settled(k kind) bool { return p.events[k].answered || !p.events[k].asked }

func (p *processor) answer(k kind, m *procpb.HeaderMutation) error {
	if p.settled(k) {
		return fmt.Errorf("%v: nothing was asked", k)
	}
	return p.settle(&p.events[k], m)
}

func (p *processor) settle(e *event, m *procpb.HeaderMutation) (err error) {
	if e.edits, err = p.rules.Edits(m.GetSetHeaders(), m.GetRemoveHeaders()); err != nil {
		return err
	}
	if e == p.last {
		decision := "passed"
		if p.final != nil {
			decision = "ended"
		}
		if p.decides(decision, p.final) {
			p.phase = over
		}
	}
	e.answered = true
	return nil
}

// receive puts a message of the processor into the queue. It must come after the answer to before.
func (p *processor) receive(d direction, before kind, r *procpb.CommonResponse) error {
	f, b := &p.flows[d], r.GetBodyMutation().GetStreamedResponse()
	switch {
	case r.GetStatus() != procpb.CommonResponse_CONTINUE:
		return fmt.Errorf("%v.response.status: must be CONTINUE, is %v", d, r.GetStatus())
	case f.passage == passing:
		return fmt.Errorf("%v: nothing was asked", d)
	case !p.settled(before):
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
	case f.credit <= 0 && (!p.drainsAll || f.waiting() > maxDrained), len(f.queue) > windowSize: // empty messages need no credit
		return fmt.Errorf("%v: more than flow control allows", d)
	}
	f.credit -= int64(len(b.GetBody()))
	f.ended = b.GetEndOfStream()
	i := item{end: b.GetEndOfStream()}
	if !(i.end && b.GetEndOfStreamWithoutMessage()) && !(b.GetDrainComplete() && len(b.GetBody()) == 0) {
		i.body = (*grpcbridge.Encoded)(&b.Body)
	}
	if i.body != nil || i.end {
		f.queue = append(f.queue, i)
	}
	if b.GetDrainComplete() {
		f.passage = passing
	}
	return nil
}

// immediate ends the RPC, or chooses its status and trailers if it answers these.
func (p *processor) immediate(r *procpb.ImmediateResponse) error {
	if p.noImmediate {
		return errors.New("immediate_response: is disabled by disable_immediate_response")
	}
	err := error(io.EOF)
	if code := immediateCode(r); code != codes.OK {
		err = status.Error(code, r.GetDetails())
	}
	if p.last != nil && !p.last.answered {
		p.final = err
		return p.settle(p.last, r.GetHeaders())
	}
	if p.decides("ended", err) {
		p.phase, p.err = failed, err
		p.cancel()
	}
	return nil
}

// immediateCode is that of the answer. One that names no code is not OK, as it may refuse the RPC.
func immediateCode(r *procpb.ImmediateResponse) codes.Code {
	switch {
	case r.GetGrpcStatus() == nil:
		return codes.Internal
	case r.GetGrpcStatus().GetStatus() > uint32(codes.Unauthenticated):
		return codes.Unknown
	}
	return codes.Code(r.GetGrpcStatus().GetStatus())
}
