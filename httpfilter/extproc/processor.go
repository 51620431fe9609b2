package extproc

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	filterpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	procpb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/httpfilter/internal/sidechannel"
	"github.com/dynxds/dynxds/internal/filterchain"
	"github.com/dynxds/dynxds/internal/headeredit"
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
	asked, answered bool
	edits           headeredit.Edits
}

// phase of the stream to the processor. It only moves on.
type phase int

const (
	live   phase = iota
	over         // it has ended, and the RPC goes on without the processor or has ended
	failed       // it has ended the RPC
)

// processor is the stream to the processor for one RPC. It is opened with the first event.
type processor struct {
	*interceptor
	app        context.Context    // of the RPC as the application started it
	ctx        context.Context    // of the RPC to the backend
	cancel     context.CancelFunc // ends that RPC
	sideCtx    context.Context
	cancelSide context.CancelFunc

	sendMu     sync.Mutex        // held while a message is sent
	side       grpc.ClientStream // nil: not opened
	halfClosed bool
	attributes [directions]map[string]*structpb.Struct // for the next event; nil: none, or sent

	mu         sync.Mutex
	changed    sync.Cond // something that mu guards, or the RPC has ended
	phase      phase
	decided    bool  // what ends phase live is known
	err        error // of phase failed; io.EOF for status OK
	events     [kinds]event
	last       *event // the one with the trailers
	final      error  // what the answer to last ends the RPC with; io.EOF for status OK
	flows      [directions]flow
	sentBodies bool
	drainsAll  bool // by the end of its stream
}

func newProcessor(ctx context.Context, i *interceptor) *processor {
	p := &processor{interceptor: i, app: ctx}
	p.changed.L = &p.mu
	p.ctx, p.cancel = context.WithCancel(ctx)
	if i.observe {
		ctx = context.WithoutCancel(ctx)
	}
	p.sideCtx, p.cancelSide = context.WithCancel(ctx)
	for d := range p.flows {
		p.flows[d] = flow{window: windowSize, credit: windowSize}
		if i.observe || !i.sends.bodies[d] {
			p.flows[d].passage = passing
		}
	}
	context.AfterFunc(p.ctx, p.endSide)
	return p
}

// endSide runs when the RPC has ended. The processor may still read what it was sent, but not for long (gRFC A93,
// "deferred_close_timeout"), unless the application has cancelled the RPC: that cancels the stream too.
func (p *processor) endSide() {
	p.mu.Lock()
	p.changed.Broadcast()
	p.mu.Unlock()
	if !p.sendMu.TryLock() {
		p.cancelSide() // a message waits for the processor to read
		return
	}
	defer p.sendMu.Unlock()
	if p.side == nil || p.sideCtx.Err() != nil || !p.observe && p.app.Err() != nil {
		p.cancelSide()
		return
	}
	p.closeSend()
	t := time.AfterFunc(p.deferred, p.cancelSide)
	context.AfterFunc(p.sideCtx, func() { t.Stop() })
}

// closeSend half-closes the stream. The caller holds sendMu.
func (p *processor) closeSend() {
	if !p.halfClosed {
		p.halfClosed = true
		_ = p.side.CloseSend()
	}
}

// wait waits until done holds, and reports false if the RPC ends instead. The caller holds mu.
func (p *processor) wait(done func() bool) bool {
	for p.phase != failed && p.ctx.Err() == nil {
		if done() {
			return true
		}
		p.changed.Wait()
	}
	return false
}

// send sends an event, the first one with attributes, and reports whether it did.
func (p *processor) send(d direction, request *procpb.ProcessingRequest) bool {
	p.sendMu.Lock()
	defer p.sendMu.Unlock()
	return p.sendLocked(d, request)
}

func (p *processor) sendLocked(d direction, request *procpb.ProcessingRequest) bool {
	request.Attributes, p.attributes[d] = p.attributes[d], nil
	return p.transmit(request)
}

// transmit sends a message, and with it what the processor may send again. The caller holds sendMu.
func (p *processor) transmit(request *procpb.ProcessingRequest) bool {
	if p.side == nil && !p.open(request) {
		return false
	}
	p.mu.Lock()
	sends := p.phase == live && !p.halfClosed
	if sends {
		if up, down := p.flows[requests].tell(), p.flows[responses].tell(); up+down > 0 {
			request.ClientWindowUpdate = &procpb.ProcessingRequest_ClientWindowUpdate{
				WindowIncrementSidestreamToUpstream: up, WindowIncrementSidestreamToDownstream: down,
			}
		}
		p.sentBodies = p.sentBodies || request.GetRequestBody() != nil || request.GetResponseBody() != nil
		p.flows[requests].lastSent = p.flows[requests].lastSent || request.GetRequestBody().GetEndOfStream()
	}
	p.mu.Unlock()
	if sends {
		request.ObservabilityMode = p.observe
		_ = p.side.SendMsg(request) // if it fails, the receiving side has the status
	}
	return sends
}

// open opens the stream, if the processor has not failed. first is the first message.
func (p *processor) open(first *procpb.ProcessingRequest) bool {
	p.mu.Lock()
	phase := p.phase
	p.mu.Unlock()
	if phase != live {
		return false
	}
	side, err := p.channel.NewStream(p.sideCtx, desc, method)
	if err != nil {
		p.fail(err)
		return false
	}
	p.side = side
	first.ProtocolConfig = &procpb.ProtocolConfiguration{RequestBodyMode: p.bodyMode(requests), ResponseBodyMode: p.bodyMode(responses)}
	if !p.observe {
		first.FlowControlInit = &procpb.ProcessingRequest_FlowControlInit{
			InitialWindowDownstreamToSidestream: windowSize, InitialWindowSidestreamToUpstream: windowSize,
			InitialWindowUpstreamToSidestream: windowSize, InitialWindowSidestreamToDownstream: windowSize,
		}
	}
	go p.read()
	return true
}

func (p *processor) bodyMode(d direction) filterpb.ProcessingMode_BodySendMode {
	if p.sends.bodies[d] {
		return filterpb.ProcessingMode_GRPC
	}
	return filterpb.ProcessingMode_NONE
}

func bodyRequest(d direction, b *procpb.HttpBody) *procpb.ProcessingRequest {
	if d == requests {
		return &procpb.ProcessingRequest{Request: &procpb.ProcessingRequest_RequestBody{RequestBody: b}}
	}
	return &procpb.ProcessingRequest{Request: &procpb.ProcessingRequest_ResponseBody{ResponseBody: b}}
}

// processes reports whether the processor is to send what goes on in a direction. It is for a new RPC.
func (p *processor) processes(d direction) bool { return p.sends.bodies[d] && !p.observe }

// passes reports whether messages of a direction pass without the processor. The caller holds mu.
func (p *processor) passes(d direction) bool { return p.phase == over || p.flows[d].passage == passing }

// process sends a message or the end of the requests, when the window allows it. It is false if these pass without the
// processor, or the RPC has ended. What comes after the processor has ended the requests is discarded.
func (p *processor) process(d direction, b *procpb.HttpBody) bool {
	f := &p.flows[d]
	p.mu.Lock()
	p.wait(func() bool {
		return f.window > 0 || b.GetEndOfStreamWithoutMessage() || f.ended || f.passage != processed || p.phase != live
	})
	p.mu.Unlock()
	p.sendMu.Lock()
	defer p.sendMu.Unlock()
	p.mu.Lock()
	discard := f.ended || f.lastSent
	goes := f.passage == processed && p.ctx.Err() == nil
	if goes && !discard {
		f.window -= int64(len(b.GetBody()))
	}
	p.mu.Unlock()
	return discard || goes && p.sendLocked(d, bodyRequest(d, b))
}

// head waits for the head of a queue. ok is false if there is none before messages pass without the processor, or the RPC ends.
func (p *processor) head(d direction) (i item, ok bool) {
	f := &p.flows[d]
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wait(func() bool { return len(f.queue) > 0 || p.passes(d) }) || len(f.queue) == 0 {
		return item{}, false
	}
	return f.queue[0], true
}

// gone says that the head of a queue has gone to where it goes.
func (p *processor) gone(d direction) {
	p.mu.Lock()
	tell := p.flows[d].pop()
	p.changed.Broadcast()
	p.mu.Unlock()
	if tell {
		p.sendMu.Lock()
		p.transmit(new(procpb.ProcessingRequest))
		p.sendMu.Unlock()
	}
}

// post sends an event that the processor answers.
func (p *processor) post(k kind, d direction, request *procpb.ProcessingRequest) {
	p.mu.Lock()
	p.events[k].asked = true
	p.mu.Unlock()
	if !p.send(d, request) {
		p.mu.Lock()
		p.events[k].answered = true
		p.mu.Unlock()
	}
}

// await waits for the answer to an event, if it was asked.
func (p *processor) await(k kind) headeredit.Edits {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &p.events[k]
	if e.asked && !p.observe {
		p.wait(func() bool { return e.answered || p.phase == over })
	}
	return e.edits
}

// failure returns what the processor ends the RPC with, nil if it does not.
func (p *processor) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// decides tells the trace of the RPC what the processor, or its failure, decided, and reports whether the caller is to end phase live
// for that: only the first one decides. An empty decision is none of the filter's. The caller holds mu, without which the trace is told.
func (p *processor) decides(decision string, why error) bool {
	if p.phase != live || p.decided {
		return false
	}
	p.decided = true
	if decision != "" {
		if why == io.EOF {
			why = nil
		}
		p.mu.Unlock()
		filterchain.Decided(p.app, p.Name, decision, why)
		p.mu.Lock()
	}
	return p.phase == live // what was sent or received meanwhile may have aborted the RPC
}

// leave ends what the processor has to do with the RPC, for the reason why.
func (p *processor) leave(to phase, err error, decision string, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.decides(decision, why) {
		p.phase, p.err = to, err
		if f := &p.flows[requests]; f.lastSent && !f.ended {
			// A processor that drains need not send the end back.
			f.queue, f.ended = append(f.queue, item{end: true}), true
		}
		p.changed.Broadcast()
	}
	if p.phase == failed {
		p.cancelSide()
		p.cancel()
	}
}

// abort ends the RPC. The processor may still read the events that were sent before.
func (p *processor) abort(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase == live {
		p.phase, p.err = failed, err
	}
	p.cancel()
}

// fail is what becomes of an RPC whose processor fails (gRFC A93, "Early Termination of ext_proc Stream").
func (p *processor) fail(err error) {
	p.mu.Lock()
	allow := p.allowFailed && (p.observe || !p.sentBodies)
	p.mu.Unlock()
	switch ended := sidechannel.Ended(p.app); {
	case ended != nil:
		p.leave(failed, ended, "", nil)
	case allow:
		p.leave(over, nil, "failed_open", err)
	default:
		p.leave(failed, status.Errorf(codes.Internal, "ext_proc: the processor has failed: %v", err), "failed", err)
	}
}

// read handles what the processor sends until its stream ends.
func (p *processor) read() {
	defer p.cancelSide()
	for {
		response := new(procpb.ProcessingResponse)
		err := p.side.RecvMsg(response)
		switch {
		case err == io.EOF && p.drained():
			p.leave(over, nil, "passed", nil)
			return
		case err == io.EOF:
			err = errors.New("its stream has ended without a drain")
		case err == nil && !p.observe:
			err = p.handle(response)
		}
		if err != nil {
			p.fail(err)
			return
		}
	}
}

// drained reports whether no message can be lost if the stream has ended.
func (p *processor) drained() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for d := range p.flows {
		if f := &p.flows[d]; f.passage != passing && !f.ended && !p.drainsAll {
			return false
		}
	}
	return true
}
