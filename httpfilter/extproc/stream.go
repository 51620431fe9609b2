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
	"github.com/dynxds/dynxds/httpfilter/internal/sidechannel"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/headeredit"
)

// stream is an RPC of the application. The processor stands between it and the backend.
type stream struct {
	*processor
	rpc     *httpfilter.RPC
	cluster string
	began   time.Time
	codec   grpcbridge.RawCodec

	started  chan struct{}
	backend  grpc.ClientStream // after started
	startErr error             // after started

	halfClosing time.Time // when the application has half-closed; mu guards it
	closed      bool      // the backend has all requests; mu guards it
	readHeader  sync.Once
	gotHeader   time.Time
	header      metadata.MD // of the backend; after readHeader
	headerErr   error
	editHeader  sync.Once
	edited      metadata.MD // after editHeader
	end         sync.Once
	trailer     metadata.MD
	endErr      error
	concluded   bool // the RPC has ended with trailer and endErr; mu guards it
}

func newStream(ctx context.Context, i *interceptor, rpc *httpfilter.RPC) *stream {
	s := &stream{processor: newProcessor(ctx, i), rpc: rpc, cluster: rpc.Cluster, began: time.Now(), started: make(chan struct{})}
	for d, names := range i.attributes {
		s.processor.attributes[d] = attributesOf(ctx, rpc, names)
	}
	if i.sends.bodies != [directions]bool{} {
		s.codec = grpcbridge.RawCodecOf(rpc.Options)
		rpc.AddOptions(grpc.ForceCodecV2(s.codec))
	}
	if s.processes(requests) {
		// The application may have asked not to compress a message, which cannot be known of those of the processor.
		rpc.AddOptions(grpc.UseCompressor(encoding.Identity))
	}
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

// showHeaders shows the request headers to the processor, before any message.
func (s *stream) showHeaders() {
	if !s.sends.requestHeaders {
		return
	}
	md, _ := metadata.FromOutgoingContext(s.ctx)
	s.post(requestHeaders, requests, &procpb.ProcessingRequest{Request: &procpb.ProcessingRequest_RequestHeaders{
		RequestHeaders: &procpb.HttpHeaders{Headers: sidechannel.HeaderMap(md, s.forward.Shows)},
	}})
}

// start starts the RPC to the backend, when the processor has answered its headers, if they were shown.
func (s *stream) start(next httpfilter.Next) {
	defer close(s.started)
	ctx := headeredit.Outgoing(s.ctx, s.await(requestHeaders))
	if s.startErr = s.failure(); s.startErr == nil {
		s.since(clientHeaders, s.began, s.cluster)
		s.backend, s.startErr = next.NewStream(ctx, s.rpc)
	}
	if s.startErr != nil {
		s.startErr = s.conclude(s.startErr) // the processor may have ended the RPC
	} else if s.processes(responses) {
		go s.runResponses()
	}
}

// Context is that of the backend's stream, which of a unary RPC must not be used before its end.
func (s *stream) Context() context.Context {
	select {
	case <-s.started:
		if s.backend != nil && (s.rpc.StreamDesc != nil || s.isConcluded()) {
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
	if s.oneRequest() {
		s.seesHalfClose()
	}
	if !s.sends.bodies[requests] {
		return s.sendBackend(m)
	}
	b, err := s.codec.Encode(m)
	if err != nil {
		return status.Errorf(codes.Internal, "ext_proc: the message cannot be serialized: %v", err)
	}
	shown := &procpb.HttpBody{Body: b, EndOfStream: s.oneRequest()}
	if s.observe {
		s.send(requests, bodyRequest(requests, shown))
		return s.sendBackend(b)
	}
	if s.process(requests, shown) {
		return nil
	}
	if !s.awaitPassage() {
		return io.EOF
	}
	return s.sendBackend(b)
}

// sendBackend sends a message of the application. The one request ends the requests.
func (s *stream) sendBackend(m any) error {
	err := s.backend.SendMsg(m)
	if s.oneRequest() {
		s.hasClosed()
	}
	return err
}

func (s *stream) CloseSend() error {
	s.seesHalfClose()
	end := &procpb.HttpBody{EndOfStream: true, EndOfStreamWithoutMessage: true}
	switch {
	case s.observe && s.sends.bodies[requests] && !s.oneRequest():
		s.send(requests, bodyRequest(requests, end))
	case s.processes(requests) && (s.process(requests, end) || !s.awaitPassage()):
		return nil
	}
	return s.closeBackend()
}

// seesHalfClose notes when the application has half-closed.
func (s *stream) seesHalfClose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.halfClosing.IsZero() {
		s.halfClosing = time.Now()
	}
}

func (s *stream) closeBackend() error {
	s.mu.Lock()
	seen := s.halfClosing
	s.mu.Unlock()
	if !seen.IsZero() { // the processor may end the requests before the application
		s.since(clientHalfClose, seen, s.cluster)
	}
	err := s.backend.CloseSend()
	s.hasClosed()
	return err
}

// hasClosed notes that the backend has all requests.
func (s *stream) hasClosed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.changed.Broadcast()
}

// awaitPassage waits until requests pass without the processor. It is false if the RPC has ended instead.
func (s *stream) awaitPassage() bool {
	<-s.started
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.startErr == nil && s.wait(func() bool { return s.passes(requests) && len(s.flows[requests].queue) == 0 })
}

// runRequests starts the RPC, and sends the processor's messages to the backend until messages pass without it.
func (s *stream) runRequests(next httpfilter.Next) {
	s.start(next)
	for sent := 0; s.startErr == nil; {
		i, ok := s.head(requests)
		if !ok {
			return
		}
		var err error
		if i.body != nil {
			sent++
			err = s.backend.SendMsg(*i.body)
		}
		switch {
		case s.oneRequest() && (sent > 1 || i.end && sent == 0):
			err = status.Errorf(codes.Internal, "ext_proc: the processor has sent %d messages in place of one request", sent)
		case i.end && (err == nil || err == io.EOF):
			err = s.closeBackend()
		}
		if err != nil && err != io.EOF { // of io.EOF, the receiving side has the status
			s.leave(failed, err, "failed", err)
		}
		s.gone(requests)
		if i.end {
			return
		}
	}
}

// receiveBackend receives a message of the backend, and shows the headers that come with it. A backend sees a unary RPC when it is
// received from, and that has no headers before.
func (s *stream) receiveBackend(m any) error {
	if s.rpc.StreamDesc != nil {
		s.headers()
		return s.backend.RecvMsg(m)
	}
	s.mu.Lock()
	closed := s.wait(func() bool { return s.closed })
	s.mu.Unlock()
	if !closed {
		return status.FromContextError(s.ctx.Err()).Err()
	}
	err := s.backend.RecvMsg(m)
	s.headers()
	return err
}

// headers reads the response headers, and shows them to the processor.
func (s *stream) headers() {
	s.readHeader.Do(func() {
		s.header, s.headerErr = s.backend.Header()
		s.gotHeader = time.Now()
		if s.header != nil && s.sends.responseHeaders {
			s.post(responseHeaders, responses, s.responseHeaders(s.header, false))
		}
	})
}

func (s *stream) responseHeaders(md metadata.MD, only bool) *procpb.ProcessingRequest {
	return &procpb.ProcessingRequest{Request: &procpb.ProcessingRequest_ResponseHeaders{
		ResponseHeaders: &procpb.HttpHeaders{Headers: sidechannel.HeaderMap(md, s.forward.Shows), EndOfStream: only},
	}}
}

// awaitHeaders waits for the response headers as the processor leaves them. There are none if the backend answers with trailers only.
func (s *stream) awaitHeaders() {
	s.headers()
	s.editHeader.Do(func() {
		if s.header == nil {
			return
		}
		s.edited = s.header
		if edits := s.await(responseHeaders); len(edits) > 0 {
			s.edited = s.header.Copy()
			edits.Apply(s.edited)
		}
		s.since(serverHeaders, s.gotHeader, s.cluster)
	})
}

func (s *stream) Header() (metadata.MD, error) {
	<-s.started
	err := s.startErr
	if s.rpc.StreamDesc == nil && !s.isConcluded() {
		return nil, nil
	}
	if err == nil {
		s.awaitHeaders()
		if err = s.failure(); err == nil {
			return s.edited, s.headerErr
		}
	}
	if err == io.EOF {
		err = nil
	}
	return nil, err
}

func (s *stream) isConcluded() bool {
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
		if s.backend != nil {
			s.headers()
			trailer = s.backend.Trailer().Copy()
			s.showTrailers(trailer).Apply(trailer)
		}
		// Who waits for the end finds it measured and decided.
		s.since(serverTrailers, seen, s.cluster)
		s.leave(over, nil, "passed", nil)
		s.mu.Lock()
		switch {
		case s.err != nil:
			trailer, err = nil, s.err
		case s.final != nil && (s.final != io.EOF || err != nil):
			err = s.final
		}
		s.trailer, s.endErr, s.concluded = trailer, err, true
		s.changed.Broadcast()
		s.mu.Unlock()
		s.cancel()
	})
	return s.endErr
}

// showTrailers shows the trailers to the processor, and returns what it changes.
func (s *stream) showTrailers(md metadata.MD) headeredit.Edits {
	k, request := responseTrailers, &procpb.ProcessingRequest{Request: &procpb.ProcessingRequest_ResponseTrailers{
		ResponseTrailers: &procpb.HttpTrailers{Trailers: sidechannel.HeaderMap(md, s.forward.Shows)},
	}}
	shows := s.sends.responseTrailers
	if s.header == nil {
		k, request, shows = responseHeaders, s.responseHeaders(md, true), s.sends.responseHeaders
	}
	if !shows {
		return nil
	}
	s.mu.Lock()
	s.last = &s.events[k]
	s.mu.Unlock()
	s.post(k, responses, request)
	return s.await(k)
}

func (s *stream) RecvMsg(m any) error {
	if <-s.started; s.startErr != nil {
		return s.startErr
	}
	if s.processes(responses) {
		return s.receiveProcessed(m)
	}
	err := s.receive(m)
	s.awaitHeaders()
	if err != nil || s.oneResponse() {
		return s.conclude(err)
	}
	return nil
}

// receive receives a message of the backend, and shows it to a processor that observes.
func (s *stream) receive(m any) error {
	if !s.sends.bodies[responses] {
		return s.receiveBackend(m)
	}
	b := new(grpcbridge.Encoded)
	if err := s.receiveBackend(b); err != nil {
		return err
	}
	s.send(responses, bodyRequest(responses, &procpb.HttpBody{Body: *b}))
	err := s.deserialize(b, m)
	for ended := err == nil || s.oneResponse(); !ended; {
		ended = s.receiveBackend(b) != nil // trailers must not be read before
	}
	return err
}

func (s *stream) deserialize(b *grpcbridge.Encoded, m any) error {
	err := s.codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(*b)}, m)
	if err != nil {
		err = status.Errorf(codes.Internal, "ext_proc: the message cannot be read: %v", err)
		s.abort(err)
	}
	return err
}

// receiveProcessed receives a message of the processor, or one that has passed it.
func (s *stream) receiveProcessed(m any) error {
	f := &s.flows[responses]
	s.mu.Lock()
	for !s.concluded && (len(f.queue) == 0 || s.phase == failed) {
		s.changed.Wait()
	}
	var got *grpcbridge.Encoded
	if s.phase != failed && len(f.queue) > 0 {
		got = f.queue[0].body
	}
	s.mu.Unlock()
	switch {
	case got != nil:
		s.awaitHeaders() // a message comes after them
	case s.endErr == nil:
		return status.Error(codes.Internal, "ext_proc: the processor has dropped the one response")
	default:
		return s.endErr
	}
	if err := s.deserialize(got, m); err != nil {
		return err
	}
	s.gone(responses)
	if !s.oneResponse() {
		return nil
	}
	s.mu.Lock()
	for !s.concluded {
		s.changed.Wait()
	}
	s.mu.Unlock()
	return s.endErr
}

// runResponses shows the backend's messages to the processor until the RPC ends.
func (s *stream) runResponses() {
	f := &s.flows[responses]
	for {
		b := new(grpcbridge.Encoded)
		err := s.receiveBackend(b)
		if err == nil && !s.process(responses, &procpb.HttpBody{Body: *b}) {
			s.mu.Lock()
			if s.wait(func() bool { return s.passes(responses) && len(f.queue) == 0 }) {
				f.queue = append(f.queue, item{body: b, own: true})
				s.changed.Broadcast()
			}
			s.mu.Unlock()
		}
		if err != nil || s.oneResponse() {
			s.mu.Lock()
			s.wait(func() bool { return f.passage == processed || s.passes(responses) }) // trailers come last
			s.mu.Unlock()
			s.conclude(err)
			return
		}
	}
}
