package ads

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// A Handler decides what a Stream sends, and works on what it receives. NextRequest and Sent
// are called from one goroutine, while a stream is open, and the other methods from another.
type Handler interface {
	// Dialect is that of the next stream.
	Dialect() wire.Dialect
	// Opened is called when a stream is open, before anything is sent or received.
	Opened()
	// NextRequest returns the request that is due. If there is none it returns nil, and when
	// the next one will be due if nothing changes until then: zero if none will.
	NextRequest() (r *wire.Request, at time.Time)
	// Sent is called when the request that NextRequest returned last has been sent.
	Sent()
	// Receive works on a response, whose bytes it does not keep unless they are more than transport.MaxPooled, and reports
	// whether it is ACKed. The next response is not read before done is closed; done is nil if the response says nothing
	// new. An error ends the stream.
	Receive(message []byte) (accepted bool, done <-chan struct{}, err error)
	// Delivered is called when the channel that Receive returned has been closed, and Reading when the next
	// response is read then, maybe after a rest.
	Delivered()
	Reading()
	// Ended is called when a stream has ended, or could not be opened. atOnce has the next one opened without backoff.
	Ended(err error) (atOnce bool)
}

// Config configures a Stream.
type Config struct {
	// Node is sent in the first request of each stream.
	Node    *corev3.Node
	Backoff backoff.Config
	// Work limits the work on the responses of the server, for which there may be several streams.
	Work *transport.Work
}

// Stream keeps an ADS stream to a server open: it opens another whenever one ends. It reads on
// one goroutine, and writes on another.
type Stream struct {
	handler Handler
	config  Config
	ctx     context.Context
	cancel  context.CancelFunc
	// wake wakes the writer when a request may be due. It has room for one, so that a
	// wake-up is never lost.
	wake chan struct{}
	// next is when the next attempt begins, nil while one is under way.
	next atomic.Pointer[time.Time]
}

// NewStream returns a stream that ends with the context.
func NewStream(ctx context.Context, h Handler, c Config) *Stream {
	s := &Stream{handler: h, config: c, wake: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

// Notify has the writer call NextRequest.
func (s *Stream) Notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Close has Run return soon after.
func (s *Stream) Close() { s.cancel() }

// Run keeps a stream open on the connection, which it releases when it returns. It waits longer
// with every attempt on which nothing was accepted. The wait counts from the start of
// the attempt: a stream that ends after a long life is replaced at once, one that ends right
// after its first answer is not.
func (s *Stream) Run(conn *transport.Conn) {
	defer conn.Release()
	failures := 0
	for s.ctx.Err() == nil {
		started := time.Now()
		accepted, err := s.attempt(conn)
		if s.ctx.Err() != nil {
			return
		}
		if s.handler.Ended(err) {
			continue
		}
		if accepted {
			failures = 0
		}
		next := started.Add(retries.After(failures, s.config.Backoff))
		failures++
		s.next.Store(&next)
		conn.Pause(s.ctx, time.Until(next))
		s.next.Store(nil)
	}
}

// NextAttempt returns when the next attempt to open a stream begins. It is zero unless the stream waits for that.
func (s *Stream) NextAttempt() time.Time {
	if next := s.next.Load(); next != nil {
		return *next
	}
	return time.Time{}
}

// attempt opens a stream and stays with it until it ends. It reports whether a response on it was accepted.
func (s *Stream) attempt(conn *transport.Conn) (accepted bool, err error) {
	cc, err := conn.Open()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	dialect := s.handler.Dialect()
	stream, err := cc.NewStream(ctx, transport.StreamDesc, dialect.Method(), grpc.ForceCodecV2(transport.Codec{}))
	if err != nil {
		return false, err
	}
	s.handler.Opened()
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := s.write(ctx, stream, dialect); err != nil {
			cancel(err)
		}
	}()
	accepted, err = s.read(ctx, stream)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(nil)
	<-written
	return accepted, err
}

// read receives responses until the stream ends. It reads the next only when the watchers are
// done with the last (gRFC A88's flow control), and after a rest if there was a lot of work
// (transport.Work); responses that say nothing new are read not faster than transport.Pace allows.
// It reports whether a response was accepted.
func (s *Stream) read(ctx context.Context, stream grpc.ClientStream) (accepted bool, err error) {
	var pace transport.Pace
	for {
		var f transport.Frame
		if err := stream.RecvMsg(&f); err != nil {
			if err == io.EOF {
				err = transport.ErrNoAnswer
			}
			return accepted, err
		}
		size := len(f.Bytes())
		began := time.Now()
		ok, done, err := s.handler.Receive(f.Bytes())
		rest := s.config.Work.Done(began)
		f.Free()
		if err != nil {
			return accepted, err
		}
		accepted = accepted || ok
		if done == nil {
			pace.Wait(ctx, size)
			continue
		}
		select {
		case <-done:
			s.handler.Delivered()
		case <-ctx.Done():
			return accepted, ctx.Err()
		}
		if err := retries.Wait(ctx, rest); err != nil {
			return accepted, err
		}
		s.handler.Reading()
	}
}

// write sends the requests that are due until the stream ends. It returns an error only if the
// client is to blame: read returns why a stream broke.
func (s *Stream) write(ctx context.Context, stream grpc.ClientStream, dialect wire.Dialect) error {
	node := s.config.Node
	for {
		r, at := s.handler.NextRequest()
		if r == nil {
			if !s.awaitRequest(ctx, at) {
				return nil
			}
			continue
		}
		r.Node, node = node, nil
		message, err := dialect.Encode(r)
		if err != nil {
			return fmt.Errorf("cannot make a request for %s: %w", r.TypeURL, err)
		}
		if err := stream.SendMsg(message); err != nil {
			return nil
		}
		s.handler.Sent()
	}
}

// awaitRequest waits until a request may be due: after Notify, or at the given time unless that
// is zero. It reports false if the context has ended.
func (s *Stream) awaitRequest(ctx context.Context, at time.Time) bool {
	var due <-chan time.Time
	if !at.IsZero() {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-s.wake:
		return true
	case <-due:
		return true
	case <-ctx.Done():
		return false
	}
}
