package router

import (
	"context"
	"io"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// stream opens the stream of a streaming RPC.
func (r *request) stream() (grpc.ClientStream, error) {
	opts := r.options()
	var s grpc.ClientStream
	var err error
	if retry := r.newRetrier(); retry.hedges() && codecOf(opts) != nil {
		s = newHedgeStream(r, retry, opts)
	} else if retry.max > 1 || r.call.limitsTries() {
		s, err = newRetryStream(r, retry, opts)
	} else {
		var ended func(error)
		opts, ended = r.reporting(1, opts, nil)
		s, err = r.call.streaming.streamer(&r.decision, r.call.rpc.StreamDesc, r.call.routes.Channel.ClientConn, r.extra.WireMethod, opts...)
		if err != nil {
			ended(err)
		}
	}
	if err != nil {
		return nil, err
	}
	return r.mirrorStream(s), nil
}

// retryStream is a stream that is opened again, and sent the same messages again, until the
// RPC is committed (gRFC A6, "When Retries are Valid"): by response headers, or by more
// messages than the buffer holds.
type retryStream struct {
	request *request
	opts    []grpc.CallOption
	codec   encoding.CodecV2
	limit   int // of the buffer, in bytes

	// mu is held while an attempt replaces another one, including the wait before it, so
	// that senders wait for the new attempt.
	mu        sync.Mutex
	retry     retrier
	attempt   *attempt
	committed bool
	buffer    []encoded // messages sent; nil once committed
	buffered  int       // bytes
	closed    bool      // CloseSend was called
	complete  bool      // the application sends no more messages
}

// attempt is one stream of a retryStream.
type attempt struct {
	grpc.ClientStream
	decision *decision.Decision
	timer    *tryTimer   // or nil
	ended    func(error) // reports the end to the trace; see reporting
	// finished is closed when gRPC has finished the stream, with err.
	finished chan struct{}
	once     sync.Once
	err      error
	// over: the stream could not be opened.
	over bool
}

func (a *attempt) finish(err error) {
	a.once.Do(func() {
		a.err = a.timer.explain(err)
		a.timer.end()
		close(a.finished)
	})
}

// requestSent is called when all messages of the request have been sent. The timeouts of the
// attempt begin.
func (a *attempt) requestSent() {
	if a.timer.start() && a.timer.policy.PerTryTimeout > 0 && !a.timer.policy.Hedges {
		// It ends with the attempt. The response starts with its headers, for which the
		// application may not ask in time.
		go func() { _, _ = a.Header() }()
	}
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

func newRetryStream(r *request, retry retrier, opts []grpc.CallOption) (*retryStream, error) {
	s := &retryStream{
		request: r,
		opts:    slices.Clip(opts),
		codec:   codecOf(opts),
		limit:   bufferSize(opts),
		retry:   retry,
	}
	s.committed = s.retry.max <= 1
	a, err := s.open()
	s.attempt = a
	if err == nil {
		return s, nil
	}
	if s.again(a, err); s.attempt.over {
		return nil, s.attempt.err
	}
	return s, nil
}

// open starts an attempt, without replay.
func (s *retryStream) open() (*attempt, error) {
	a, n := new(attempt), s.retry.made
	opts := s.opts
	if n > 0 && s.codec != nil {
		opts = append(opts, resending(opts, s.codec))
	}
	opts = a.prepare(s.request, n, s.retry.hosts, opts)
	return a, a.open(s.request, opts)
}

// prepare prepares an attempt after n others, and returns its options.
func (a *attempt) prepare(r *request, n int, hosts *decision.Hosts, opts []grpc.CallOption) []grpc.CallOption {
	a.finished = make(chan struct{})
	a.decision, a.timer = r.attempt(n, hosts)
	// The trace gets the end of the attempt before anything that it leads to.
	opts, a.ended = r.reporting(n+1, opts, a.timer)
	return append(slices.Clip(opts), grpc.OnFinish(a.finish))
}

// open opens the stream of an attempt.
func (a *attempt) open(r *request, opts []grpc.CallOption) (err error) {
	c := r.call
	a.ClientStream, err = c.streaming.streamer(a.decision, c.rpc.StreamDesc, c.routes.Channel.ClientConn, r.extra.WireMethod, opts...)
	if err != nil {
		a.ended(err)
		a.end(err, nil)
	}
	return err
}

// end ends a, which has no stream.
func (a *attempt) end(err error, trailer metadata.MD) {
	a.over = true
	a.ClientStream = httpfilter.EndedStream(a.decision, err, trailer)
	a.finish(err)
}

// endWith ends the RPC.
func (s *retryStream) endWith(err error, trailer metadata.MD) {
	s.attempt = &attempt{decision: &s.request.decision, finished: make(chan struct{})}
	s.attempt.end(err, trailer)
}

// again is called when attempt a has ended with err, which is not OK, and without response
// headers. It reports whether there is another attempt, which may have ended as well.
func (s *retryStream) again(a *attempt, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attempt != a {
		return true // The other of sender and receiver was first.
	}
	if s.committed {
		return false
	}
	for s.retry.again(&s.request.decision, err, s.attempt.Trailer()) {
		s.request.retried(&s.retry, err)
		if err := s.retry.wait(&s.request.decision); err != nil {
			s.endWith(err, nil)
			break
		}
		failed, failure := s.attempt, err
		if s.attempt, err = s.open(); err == nil {
			s.replay(s.attempt)
			return true
		}
		if s.request.decision.Failure() == rpctrace.MaxRetries {
			s.retry.sent--
			s.endWith(notRetried(failure, err), failed.Trailer())
			break
		}
	}
	s.commitLocked()
	return s.attempt != a
}

// replay sends the buffer on an attempt. If that fails, the attempt has ended, which its
// next use reports.
func (s *retryStream) replay(a *attempt) {
	for _, m := range s.buffer {
		if a.SendMsg(m) != nil {
			return
		}
	}
	if s.closed {
		_ = a.CloseSend()
	}
	if s.complete {
		a.requestSent()
	}
}

func (s *retryStream) commitLocked() {
	if !s.committed {
		s.request.call.recordRetries(&s.retry)
	}
	s.committed, s.buffer = true, nil
}

func (s *retryStream) commit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commitLocked()
}

func (s *retryStream) current() (a *attempt, committed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempt, s.committed
}

// keep buffers a message, or commits the RPC if there is no room, and returns the attempt to
// send it on.
func (s *retryStream) keep(m any) (a *attempt, committed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.committed {
		e, ok := encode(s.codec, m)
		s.buffered += len(e) + frameHeader
		if ok && s.buffered <= s.limit {
			s.buffer = append(s.buffer, e)
		} else {
			s.commitLocked()
		}
	}
	return s.attempt, s.committed
}

func (s *retryStream) SendMsg(m any) error {
	a, committed := s.keep(m)
	err := a.SendMsg(m)
	if err == nil && a.timer != nil && !s.request.rpc.StreamDesc.ClientStreams {
		s.end(false)
	}
	if err != io.EOF || committed {
		return err
	}
	// The attempt has ended. Header does not block now, and unlike RecvMsg it may be called
	// by the sender.
	if header, _ := a.Header(); header != nil {
		s.commit()
		return err
	}
	<-a.finished
	if a.err == nil || !s.again(a, a.err) {
		return err
	}
	if a, _ = s.current(); a.over {
		return err
	}
	return nil // The replay included m.
}

func (s *retryStream) RecvMsg(m any) error {
	for {
		a, committed := s.current()
		err := a.RecvMsg(m)
		if committed {
			return err
		}
		if err != nil && err != io.EOF {
			if header, _ := a.Header(); header == nil && s.again(a, err) {
				continue
			}
		}
		s.commit()
		return err
	}
}

func (s *retryStream) Header() (metadata.MD, error) {
	for {
		a, committed := s.current()
		md, err := a.Header()
		if md == nil && err == nil && !committed {
			if <-a.finished; a.err != nil && s.again(a, a.err) {
				continue
			}
		}
		s.commit()
		return md, err
	}
}

func (s *retryStream) Trailer() metadata.MD {
	a, _ := s.current()
	return a.Trailer()
}

// Context commits the RPC, as it does in gRPC.
func (s *retryStream) Context() context.Context {
	s.commit()
	a, _ := s.current()
	return a.Context()
}

func (s *retryStream) CloseSend() error { return s.end(true) }

// end is called when the application sends no more messages; closed: by CloseSend.
func (s *retryStream) end(closed bool) (err error) {
	s.mu.Lock()
	s.complete, s.closed = true, s.closed || closed
	a := s.attempt
	s.mu.Unlock()
	if closed {
		err = a.CloseSend()
	}
	a.requestSent()
	return err
}
