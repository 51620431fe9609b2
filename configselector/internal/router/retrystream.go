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
)

// stream opens the stream of a streaming RPC.
func (r *request) stream() (grpc.ClientStream, error) {
	opts := r.options()
	var s grpc.ClientStream
	var err error
	if r.call.route.Retry != nil && r.newRetrier().max > 1 {
		s, err = newRetryStream(r, opts)
	} else {
		var ended func(error)
		opts, ended = r.reporting(1, opts)
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
}

// attempt is one stream of a retryStream.
type attempt struct {
	grpc.ClientStream
	decision *decision.Decision
	// finished is closed when gRPC has finished the stream, with err.
	finished chan struct{}
	once     sync.Once
	err      error
	// over: the stream could not be opened.
	over bool
}

func (a *attempt) finish(err error) {
	a.once.Do(func() {
		a.err = err
		close(a.finished)
	})
}

func newRetryStream(r *request, opts []grpc.CallOption) (*retryStream, error) {
	s := &retryStream{
		request: r,
		opts:    slices.Clip(opts),
		codec:   codecOf(opts),
		limit:   bufferSize(opts),
		retry:   r.newRetrier(),
	}
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
	c, n := s.request.call, s.retry.made
	a := &attempt{decision: s.request.attempt(n), finished: make(chan struct{})}
	// The trace gets the end of the attempt before anything that it leads to.
	opts, ended := s.request.reporting(n+1, s.opts)
	opts = append(opts, grpc.OnFinish(a.finish))
	if n > 0 && s.codec != nil {
		opts = append(opts, grpc.ForceCodecV2(resend{s.codec}))
	}
	var err error
	a.ClientStream, err = c.streaming.streamer(a.decision, c.rpc.StreamDesc, c.routes.Channel.ClientConn, s.request.extra.WireMethod, opts...)
	if err != nil {
		ended(err)
		s.over(a, err)
	}
	return a, err
}

// over ends a, which has no stream, with err.
func (s *retryStream) over(a *attempt, err error) {
	a.over = true
	a.ClientStream = httpfilter.EndedStream(a.decision, err, nil)
	a.finish(err)
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
	for s.retry.again(s.attempt.decision, err, s.attempt.Trailer()) {
		s.request.retried(&s.retry, err)
		if err = s.retry.wait(a.decision); err != nil {
			s.attempt = &attempt{decision: a.decision, finished: make(chan struct{})}
			s.over(s.attempt, err)
			break
		}
		if s.attempt, err = s.open(); err == nil {
			s.replay(s.attempt)
			return true
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
}

func (s *retryStream) commitLocked() {
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

func (s *retryStream) CloseSend() error {
	s.mu.Lock()
	s.closed = true
	a := s.attempt
	s.mu.Unlock()
	return a.CloseSend()
}
