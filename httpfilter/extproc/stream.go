package extproc

import (
	"context"
	"io"
	"sync"
	"time"

	procpb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/httpfilter/internal/attributes"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/headeredit"
)

// stream is an RPC of the application. The processor stands between it and the backend: write and read have the stream to the processor,
// which is opened with the first event, and toBackend and fromBackend the messages that it is to send on. Each is a goroutine of its own.
type stream struct {
	*interceptor
	rpc     *httpfilter.RPC
	cluster string
	began   time.Time
	codec   grpcbridge.RawCodec

	app        context.Context    // of the RPC as the application started it
	ctx        context.Context    // of the RPC to the backend
	cancel     context.CancelFunc // ends that RPC
	sideCtx    context.Context    // of the stream to the processor
	cancelSide context.CancelFunc

	started    chan struct{}
	backend    grpc.ClientStream // after started; nil: the RPC has ended with endErr
	readHeader sync.Once
	gotHeader  time.Time
	header     metadata.MD // of the backend; after readHeader
	editHeader sync.Once
	edited     metadata.MD // after editHeader
	end        sync.Once
	telling    sync.WaitGroup // the trace of the decision

	mu         sync.Mutex                              // guards what follows
	changed    sync.Cond                               // something of that, or the RPC has ended
	left       bool                                    // the processor has nothing to do with the RPC any more
	err        error                                   // what it has ended the RPC with, io.EOF for status OK; nil: the RPC goes on
	outbox     []*procpb.ProcessingRequest             // for the processor
	opened     bool                                    // its stream, or about to be
	attributes [directions]map[string]*structpb.Struct // for the next event; nil: none, or sent
	events     [kinds]event
	last       *event // the one with the trailers
	final      error  // what the answer to last ends the RPC with; io.EOF for status OK
	flows      [directions]flow
	sentBodies bool
	drainsAll  bool      // by the end of the processor's stream
	halfClosed time.Time // by the application
	closed     bool      // the backend has all requests
	concluded  bool      // the RPC has ended with trailer and endErr
	trailer    metadata.MD
	endErr     error
}

func newStream(ctx context.Context, i *interceptor, rpc *httpfilter.RPC) *stream {
	s := &stream{interceptor: i, rpc: rpc, cluster: rpc.Cluster, began: time.Now(), app: ctx, started: make(chan struct{})}
	s.changed.L = &s.mu
	for d, names := range i.attributes {
		s.attributes[d] = attributesOf(ctx, rpc, names)
		s.flows[d] = flow{window: windowSize, credit: windowSize}
		if i.observe || !i.sends.bodies[d] {
			s.flows[d].passage = passing
		}
	}
	if i.sends.bodies != [directions]bool{} {
		s.codec = grpcbridge.RawCodecOf(rpc.Options)
		rpc.AddOptions(grpc.ForceCodecV2(s.codec))
	}
	if i.sends.bodies[requests] && !i.observe {
		// The application may have asked not to compress a message, which cannot be known of those of the processor.
		rpc.AddOptions(grpc.UseCompressor(encoding.Identity))
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	if i.observe {
		ctx = context.WithoutCancel(ctx)
	}
	s.sideCtx, s.cancelSide = context.WithCancel(ctx)
	context.AfterFunc(s.ctx, s.ended)
	return s
}

// attributesOf returns the attributes of an RPC as the processor sees them (gRFC A93, "Attributes Sent to ext_proc Server").
func attributesOf(ctx context.Context, rpc *httpfilter.RPC, names []string) map[string]*structpb.Struct {
	if len(names) == 0 {
		return nil
	}
	of, found := attributes.Of(ctx, rpc), &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for _, name := range names {
		switch value, _ := of.Value(name); value := value.(type) {
		case string:
			found.Fields[name] = structpb.NewStringValue(value)
		case map[string]string:
			all := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(value))}
			for name, value := range value {
				all.Fields[name] = structpb.NewStringValue(value)
			}
			found.Fields[name] = structpb.NewStructValue(all)
		}
	}
	return map[string]*structpb.Struct{"envoy.filters.http.ext_proc": found}
}

// oneRequest and oneResponse report whether a side of the RPC has one message.
func (s *stream) oneRequest() bool { return s.rpc.StreamDesc == nil || !s.rpc.StreamDesc.ClientStreams }
func (s *stream) oneResponse() bool {
	return s.rpc.StreamDesc == nil || !s.rpc.StreamDesc.ServerStreams
}

// start starts the RPC to the backend, when the processor has answered its headers, if they were shown.
func (s *stream) start(next httpfilter.Next) {
	defer close(s.started)
	ctx := headeredit.Outgoing(s.ctx, s.answered(requestHeaders))
	err := s.failure()
	if err == nil {
		s.since(clientHeaders, s.began)
		s.backend, err = next.NewStream(ctx, s.rpc)
	}
	if err != nil {
		s.backend = nil
		s.conclude(err) // the processor may have ended the RPC
	} else if s.sends.bodies[responses] {
		go s.fromBackend()
	}
}

// Context is that of the backend's stream, which of a unary RPC must not be used before its end.
func (s *stream) Context() context.Context {
	select {
	case <-s.started:
		if s.backend != nil && (s.rpc.StreamDesc != nil || s.hasEnded()) {
			return s.backend.Context()
		}
	default:
	}
	return s.ctx
}

// SendMsg ends the RPC if the message cannot be sent, as gRPC's SendMsg does: the application need not receive then.
func (s *stream) SendMsg(m any) error {
	err := s.sendMessage(m)
	if err != nil && err != io.EOF {
		s.abort(err)
	}
	return err
}

func (s *stream) sendMessage(m any) error {
	if !s.sends.bodies[requests] {
		return s.backend.SendMsg(m)
	}
	b, err := s.codec.Encode(m)
	if err != nil {
		return status.Errorf(codes.Internal, "ext_proc: the message cannot be serialized: %v", err)
	}
	if !s.through(requests, &procpb.HttpBody{Body: b, EndOfStream: s.oneRequest()}) {
		return io.EOF
	}
	return nil
}

// abort ends the RPC with an error of a message. Messages that were sent to the processor before stay readable.
func (s *stream) abort(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(err, "", nil)
	s.cancel()
}

func (s *stream) CloseSend() error {
	if !s.sends.bodies[requests] {
		return s.closeBackend(time.Now())
	}
	s.through(requests, &procpb.HttpBody{EndOfStream: true, EndOfStreamWithoutMessage: true})
	return nil
}

// closeBackend ends the requests. halfClosed is when the application did, zero if the processor ends them before.
func (s *stream) closeBackend(halfClosed time.Time) error {
	if !halfClosed.IsZero() {
		s.since(clientHalfClose, halfClosed)
	}
	err := s.backend.CloseSend()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.changed.Broadcast()
	return err
}

// toBackend starts the RPC, and sends the backend what goes through the processor.
func (s *stream) toBackend(next httpfilter.Next) {
	s.start(next)
	f, i, halfClosed := &s.flows[requests], item{}, time.Time{}
	head := func() bool {
		if len(f.queue) > 0 {
			i, halfClosed = f.queue[0], s.halfClosed
		}
		return len(f.queue) > 0
	}
	for sent := 0; s.backend != nil && !i.end && s.await(head); {
		var err error
		if i.body != nil {
			sent++
			err = s.backend.SendMsg(*i.body)
		}
		if s.oneRequest() && (sent > 1 || i.end && sent == 0) {
			err = status.Errorf(codes.Internal, "ext_proc: the processor has sent %d messages in place of one request", sent)
		} else if i.end && (err == nil || err == io.EOF) {
			err = s.closeBackend(halfClosed)
		}
		s.mu.Lock()
		if err != nil && err != io.EOF { // of io.EOF, the receiving side has the status
			s.leave(err, "failed", err)
		}
		f.refused = f.refused || err == io.EOF
		f.pop()
		s.changed.Broadcast()
		s.mu.Unlock()
	}
}

// receiveBackend receives a message of the backend, and shows the headers that come with it. A backend sees a unary RPC when it is
// received from, and that has no headers before.
func (s *stream) receiveBackend(m any) error {
	if s.rpc.StreamDesc != nil {
		s.headers()
		return s.backend.RecvMsg(m)
	}
	if !s.await(func() bool { return s.closed }) {
		return status.FromContextError(s.ctx.Err()).Err()
	}
	err := s.backend.RecvMsg(m)
	s.headers()
	return err
}

// headers reads the response headers, and shows them to the processor.
func (s *stream) headers() {
	s.readHeader.Do(func() {
		s.header, _ = s.backend.Header()
		s.gotHeader = time.Now()
		if s.header != nil {
			s.ask(responseHeaders, s.header, false)
		}
	})
}

// awaitHeaders waits for the response headers as the processor leaves them. There are none if the backend answers with trailers only,
// or the RPC ends before.
func (s *stream) awaitHeaders() {
	s.headers()
	s.editHeader.Do(func() {
		if s.header == nil {
			return
		}
		edits := s.answered(responseHeaders)
		s.mu.Lock()
		ended := s.err != nil || s.events[responseHeaders].asked && !s.left
		s.mu.Unlock()
		if ended {
			return
		}
		s.edited = s.header
		if len(edits) > 0 {
			s.edited = s.header.Copy()
			edits.Apply(s.edited)
		}
		s.since(serverHeaders, s.gotHeader)
	})
}

// Header returns no error, as gRPC's does: RecvMsg has it.
func (s *stream) Header() (metadata.MD, error) {
	<-s.started
	if s.backend == nil || s.rpc.StreamDesc == nil && !s.hasEnded() {
		return nil, nil
	}
	s.awaitHeaders()
	return s.edited, nil
}

// failure returns what the processor ends the RPC with, nil if it does not.
func (s *stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *stream) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.concluded
}

func (s *stream) Trailer() metadata.MD {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trailer
}

// conclude ends the RPC with what the backend ends it with, and returns what the application gets.
func (s *stream) conclude(err error) error {
	s.end.Do(func() {
		seen := time.Now()
		var trailer metadata.MD
		if s.backend != nil && s.failure() == nil {
			s.headers()
			trailer = s.backend.Trailer().Copy()
			k := responseTrailers
			if s.header == nil {
				k = responseHeaders
			}
			s.ask(k, trailer, true)
			s.answered(k).Apply(trailer)
		}
		// Who waits for the end finds it measured and decided.
		s.since(serverTrailers, seen)
		s.mu.Lock()
		defer s.mu.Unlock()
		decision := "passed"
		if s.final != nil {
			decision = "ended"
		}
		s.leave(nil, decision, s.final)
		s.mu.Unlock()
		s.telling.Wait()
		s.mu.Lock()
		switch {
		case s.err != nil:
			trailer, err = nil, s.err
		case s.final != nil && (s.final != io.EOF || err != nil):
			err = s.final
		}
		s.trailer, s.endErr, s.concluded = trailer, err, true
		s.changed.Broadcast()
		s.cancel()
	})
	return s.endErr
}

func (s *stream) RecvMsg(m any) error {
	if <-s.started; s.backend == nil {
		return s.endErr
	}
	if s.sends.bodies[responses] {
		return s.receive(m)
	}
	err := s.receiveBackend(m)
	s.awaitHeaders()
	if err != nil || s.oneResponse() {
		return s.conclude(err)
	}
	return nil
}

// receive receives a message that fromBackend or the processor has put into the queue.
func (s *stream) receive(m any) error {
	f := &s.flows[responses]
	s.mu.Lock()
	for !s.concluded && (len(f.queue) == 0 || s.err != nil) {
		s.changed.Wait()
	}
	var got *grpcbridge.Encoded
	if s.err == nil && len(f.queue) > 0 {
		got = f.queue[0].body
	}
	s.mu.Unlock()
	switch {
	case got == nil && s.endErr != nil:
		return s.endErr
	case got == nil:
		return status.Error(codes.Internal, "ext_proc: the processor has dropped the one response")
	}
	s.awaitHeaders() // a message comes after them
	if err := s.codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(*got)}, m); err != nil {
		err = status.Errorf(codes.Internal, "ext_proc: the message cannot be read: %v", err)
		s.abort(err)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.pop()
	s.changed.Broadcast()
	if !s.oneResponse() {
		return nil
	}
	for !s.concluded {
		s.changed.Wait()
	}
	return s.endErr
}

// fromBackend has the backend's messages go through the processor until the RPC ends.
func (s *stream) fromBackend() {
	f := &s.flows[responses]
	for {
		b := new(grpcbridge.Encoded)
		err := s.receiveBackend(b)
		if err == nil {
			s.through(responses, &procpb.HttpBody{Body: *b})
		}
		if err != nil || s.oneResponse() {
			s.await(func() bool { return f.passage == processed || s.passes(responses) }) // trailers come last
			s.conclude(err)
			return
		}
	}
}
