package router

import (
	"context"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/httpfilter"
)

// stream opens the stream of a streaming RPC.
func (r *request) stream() (grpc.ClientStream, error) {
	opts := r.options()
	var s grpc.ClientStream
	var err error
	if retry := r.newRetrier(); retry.resends(r.call) {
		s, err = newReplayStream(r, retry, opts)
	} else {
		ended := r.endReporter(1, nil)
		s, err = r.call.streaming.streamer(&r.decision, r.call.rpc.StreamDesc, r.call.routes.Channel.ClientConn, r.extra.WireMethod, r.reporting(opts, ended)...)
		if err != nil {
			ended(err)
		}
	}
	if err != nil {
		return nil, err
	}
	return r.mirrorStream(s), nil
}

// replayStream is a streaming RPC that is sent again as a whole until it is committed to an attempt (gRFC A6,
// "When Retries are Valid"): by response headers, or by more messages than the buffer holds. Hedges begin
// when the request is complete, so that the application sends on one stream.
type replayStream struct {
	replay
	opts  []grpc.CallOption
	codec encoding.CodecV2
	limit int // of the buffer, in bytes
	// outcome is where filters asked for the outcome of a hedged RPC to be reported.
	outcome outcome

	// replay.mu guards these.
	buffer   []encoded // messages sent; nil once the RPC is decided
	buffered int       // bytes
	closed   bool      // CloseSend was called
	complete bool      // the application sends no more messages
}

func (a *attempt) finish(err error) {
	a.once.Do(func() {
		a.err = a.timer.explain(err)
		a.timer.end()
		close(a.finished)
	})
}

// end ends a, which has no stream.
func (a *attempt) end(err error, trailer metadata.MD) {
	a.unopened = true
	a.ClientStream = httpfilter.EndedStream(a.decision, err, trailer)
	a.finish(err)
}

// Header reports response headers to the timer.
func (a *attempt) Header() (metadata.MD, error) {
	md, err := a.ClientStream.Header()
	if md != nil {
		a.timer.received()
	}
	return md, err
}

// RecvMsg reports messages to the timer, and returns its error if it has ended the attempt.
func (a *attempt) RecvMsg(m any) error {
	err := a.ClientStream.RecvMsg(m)
	switch {
	case a.timer == nil || err == io.EOF:
		return err
	case err == nil:
		a.timer.received()
		return nil
	}
	a.ended(err) // Another goroutine may be about to finish the stream.
	return a.timer.explain(err)
}

func newReplayStream(r *request, retry retrier, opts []grpc.CallOption) (*replayStream, error) {
	s := &replayStream{codec: codecOf(opts), limit: bufferSize(opts)}
	if retry.hedges() {
		s.outcome = opts
		opts = s.outcome.shared()
	}
	s.opts = slices.Clip(opts)
	first := new(attempt)
	s.init(r, retry, first, s)
	if retry.max <= 1 {
		s.answered(first)
	}
	first.begun = true
	if s.open(first); first.unopened {
		if a := s.replaced(first); a.unopened {
			return nil, a.err
		}
	}
	return s, nil
}

// open opens the stream of an attempt.
func (s *replayStream) open(a *attempt) {
	c, r := s.request.call, s.request
	opts := s.opts
	if a.number > 0 && s.codec != nil {
		opts = append(opts, resending(opts, s.codec))
	}
	a.finished = make(chan struct{})
	// The trace gets the end of the attempt before anything that it leads to.
	opts = append(slices.Clip(r.reporting(opts, a.ended)), grpc.OnFinish(a.finish))
	var err error
	a.ClientStream, err = c.streaming.streamer(a.decision, c.rpc.StreamDesc, c.routes.Channel.ClientConn, r.extra.WireMethod, opts...)
	if err != nil {
		a.ended(err)
		a.end(err, nil)
	}
}

// begin implements sender: it opens the attempt, and sends the buffer. If that fails, the attempt has ended, which its
// followers find.
func (s *replayStream) begin(a *attempt) {
	s.open(a)
	s.mu.Lock()
	messages, closed, complete := s.buffer, s.closed, s.complete
	s.mu.Unlock()
	for _, m := range messages {
		if a.SendMsg(m) != nil {
			return
		}
	}
	if closed {
		_ = a.CloseSend()
	}
	if complete {
		a.requestSent()
	}
}

// follow implements sender.
func (s *replayStream) follow(a *attempt) { s.followed(a) }

// fits implements sender: what does not fit the buffer decides the RPC.
func (s *replayStream) fits() bool { return true }

// requestSent is called when all messages of the request have been sent on an attempt. Its timeouts begin, and
// requestSent reports whether they begin now.
func (a *attempt) requestSent() bool {
	if !a.timer.start() {
		return false
	}
	if a.timer.policy.PerTryTimeout > 0 && a.timer.late == nil {
		// The response starts with its headers, for which the application may not ask in time. The
		// goroutine ends with the attempt.
		go func() { _, _ = a.Header() }()
	}
	return true
}

// current returns the attempt that the application uses, once it has begun.
func (s *replayStream) current() (a *attempt, decided bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.currentLocked()
}

func (s *replayStream) currentLocked() (a *attempt, decided bool) {
	for s.winner == nil && s.launching {
		if a := s.latest; a.begun && !a.over {
			return a, false // A hedge is about to begin.
		}
		s.changed.Wait()
	}
	if s.winner != nil {
		s.buffer = nil
		return s.winner, true
	}
	return s.latest, false
}

// replaced is called when attempt a has ended with an error, and without response headers. It returns the
// attempt that the RPC goes on with, or, if the RPC has ended, a or an attempt without a stream.
func (s *replayStream) replaced(a *attempt) *attempt {
	for {
		if <-a.finished; a.err == nil {
			return s.answered(a)
		}
		next, _ := s.after(a, a.ClientStream.Trailer())
		if !next.unopened || next == s.decidedFor() {
			return next
		}
		a = next
	}
}

// followed waits until the RPC is decided for a or an attempt after it, and returns that.
func (s *replayStream) followed(a *attempt) *attempt {
	for {
		if md, err := a.Header(); md != nil || err != nil {
			return s.answered(a)
		}
		next := s.replaced(a)
		if next == s.decidedFor() {
			return next
		}
		a = next
	}
}

// settled returns the attempt that is the RPC.
func (s *replayStream) settled() *attempt {
	a, _ := s.current()
	return s.followed(a)
}

// keep buffers a message, or decides the RPC if there is no room, and returns the attempt to
// send it on.
func (s *replayStream) keep(m any) (a *attempt, decided bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, decided = s.currentLocked(); decided {
		return a, true
	}
	e, ok := encode(s.codec, m)
	if s.buffered += len(e) + frameHeader; ok && s.buffered <= s.limit {
		s.buffer = append(s.buffer, e)
		return a, false
	}
	s.decideLocked(a)
	return a, true
}

func (s *replayStream) SendMsg(m any) error {
	a, decided := s.keep(m)
	err := a.SendMsg(m)
	if err == nil && a.timer != nil && !s.request.rpc.StreamDesc.ClientStreams {
		s.end(false)
	}
	if err != io.EOF || decided {
		return err
	}
	// The attempt has ended. Header does not block now, and unlike RecvMsg it may be called
	// by the sender.
	if header, _ := a.Header(); header != nil {
		s.answered(a)
		return err
	}
	if next := s.replaced(a); next == a || next.unopened {
		return err
	}
	return nil // The next attempt was sent m too.
}

func (s *replayStream) RecvMsg(m any) error {
	for {
		a, decided := s.current()
		if !decided && a.timer != nil && a.timer.late != nil {
			a, decided = s.followed(a), true
		}
		err := a.RecvMsg(m)
		if !decided {
			if err != nil && err != io.EOF {
				if header, _ := a.Header(); header == nil && s.replaced(a) != a {
					continue
				}
			}
			s.answered(a)
		}
		if err != nil || !s.request.rpc.StreamDesc.ServerStreams {
			s.outcome.report(a, s.request.call.origin)
		}
		return err
	}
}

func (s *replayStream) Header() (metadata.MD, error) { return s.settled().Header() }

func (s *replayStream) Trailer() metadata.MD {
	a, _ := s.current()
	return a.Trailer()
}

// Context decides the RPC, as it does in gRPC.
func (s *replayStream) Context() context.Context {
	a, _ := s.current()
	return s.answered(a).Context()
}

func (s *replayStream) CloseSend() error { return s.end(true) }

// end is called when the application sends no more messages; closed: by CloseSend.
func (s *replayStream) end(closed bool) (err error) {
	s.mu.Lock()
	a, _ := s.currentLocked()
	s.complete, s.closed = true, s.closed || closed
	s.mu.Unlock()
	if closed {
		err = a.CloseSend()
	}
	if a.requestSent() && a.timer.late != nil {
		go s.followed(a)
	}
	return err
}
