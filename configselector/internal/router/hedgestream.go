package router

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// hedgeStream is a streaming RPC with hedges. What the application sends is buffered, and each
// attempt sends the buffer at its own pace, until the RPC is committed to one of them (gRFC A6,
// "When Retries are Valid"): by its response headers, or because a message does not fit the buffer.
type hedgeStream struct {
	hedging
	opts  []grpc.CallOption
	codec encoding.CodecV2
	limit int // of the buffer, in bytes
	// outcome is where filters asked for the outcome to be reported.
	outcome outcome

	mu        sync.Mutex
	changed   sync.Cond     // of anything below, or of a streamTry
	open      []*try        // attempts
	buffer    []encoded     // messages sent
	buffered  int           // bytes
	complete  bool          // the application sends no more messages
	winner    *try          // the attempt that is the RPC, once it is committed
	committed chan struct{} // closed when the RPC is committed to winner, at the latest when the others have ended
}

// streamTry is what a hedgeStream keeps of an attempt. The mutex of the hedgeStream guards it.
type streamTry struct {
	opened  chan struct{} // closed when the attempt has a stream
	sent    int           // messages of the buffer
	drained bool          // they are all of it, or no more can be sent
	failed  bool
}

func newHedgeStream(r *request, retry retrier, opts []grpc.CallOption) *hedgeStream {
	s := &hedgeStream{
		hedging:   newHedging(r, retry),
		codec:     codecOf(opts),
		limit:     bufferSize(opts),
		committed: make(chan struct{}),
	}
	opts = s.outcome.splitShared(opts)
	s.opts = append(slices.Clip(opts), resending(opts, s.codec))
	s.changed.L = &s.mu
	s.hedging.begin = s.begin
	go s.run()
	return s
}

// run ends when the RPC is committed, which the end of its context causes too.
func (s *hedgeStream) run() {
	winner, err := s.hedging.run(s.committed)
	if err != nil {
		var trailer metadata.MD
		if winner != nil {
			trailer = winner.trailer
		}
		winner = &try{stream: streamTry{opened: make(chan struct{}), drained: true}}
		winner.decision, winner.finished = &s.request.decision, make(chan struct{})
		winner.end(err, trailer)
		close(winner.stream.opened)
	}
	s.mu.Lock()
	chosen := s.winner == nil // otherwise a message that does not fit the buffer was first
	if chosen {
		s.winner = winner
		s.changed.Broadcast()
	}
	winner = s.winner
	s.mu.Unlock()
	s.settle(winner)
	if chosen {
		close(s.committed)
	}
}

func (s *hedgeStream) commitLocked(t *try) {
	s.winner = t
	close(s.committed)
	s.changed.Broadcast()
}

// begin implements hedging.begin.
func (s *hedgeStream) begin(t *try) {
	t.stream.opened = make(chan struct{})
	opts := s.prepare(t, s.opts)
	s.mu.Lock()
	s.open = append(s.open, t)
	s.changed.Broadcast()
	s.mu.Unlock()
	go func() {
		err := t.attempt.open(s.request, opts)
		close(t.stream.opened)
		if err == nil {
			go s.feed(t)
			if md, _ := t.Header(); md != nil {
				s.post(t, true, nil, nil)
				return
			}
			<-t.finished
		}
		s.mu.Lock()
		t.stream.failed = true
		t.stream.drained = t.stream.drained || err != nil
		s.changed.Broadcast()
		s.mu.Unlock()
		s.post(t, false, t.err, t.Trailer())
	}()
}

// feed sends the buffer on an attempt, until the RPC is committed or the request is complete.
func (s *hedgeStream) feed(t *try) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.winner != nil && s.winner != t:
			return
		case t.stream.sent < len(s.buffer):
			m := s.buffer[t.stream.sent]
			s.mu.Unlock()
			err := t.SendMsg(m)
			s.mu.Lock()
			if t.stream.sent++; err == nil {
				continue
			}
			// The attempt has ended, which its next use reports.
		case s.complete:
			s.mu.Unlock()
			_ = t.CloseSend()
			t.requestSent()
			s.mu.Lock()
		case s.winner == nil && !t.stream.failed:
			s.changed.Wait()
			continue
		}
		t.stream.drained = true
		if s.winner == t {
			s.buffer = nil
		}
		s.changed.Broadcast()
		return
	}
}

// commitToBestLocked commits the RPC, unless it is committed, to the attempt that has sent most.
// Between the failure of all and the next attempt it waits.
func (s *hedgeStream) commitToBestLocked() *try {
	for s.winner == nil {
		var best *try
		for _, t := range s.open {
			if !t.stream.failed && (best == nil || t.stream.sent > best.stream.sent) {
				best = t
			}
		}
		if best != nil {
			s.commitLocked(best)
			break
		}
		s.changed.Wait()
	}
	return s.winner
}

func (s *hedgeStream) SendMsg(m any) error {
	s.mu.Lock()
	if s.complete {
		s.mu.Unlock()
		return status.Error(codes.Internal, "dynxds: SendMsg after the request was complete")
	}
	streams := s.request.rpc.StreamDesc.ClientStreams
	if s.winner == nil {
		e, ok := encode(s.codec, m)
		if s.buffered += len(e) + frameHeader; ok && s.buffered <= s.limit {
			s.buffer = append(s.buffer, e)
			s.complete = !streams
			s.changed.Broadcast()
			s.mu.Unlock()
			return nil
		}
	}
	w := s.commitToBestLocked()
	for !w.stream.drained {
		s.changed.Wait()
	}
	s.complete = !streams
	s.mu.Unlock()
	err := w.SendMsg(m)
	if err == nil && !streams {
		w.requestSent()
	}
	return err
}

// CloseSend leaves it to feed, while that runs, to end the request.
func (s *hedgeStream) CloseSend() error {
	s.mu.Lock()
	s.complete = true
	s.changed.Broadcast()
	w := s.winner
	direct := w != nil && w.stream.drained
	s.mu.Unlock()
	if !direct {
		return nil
	}
	err := w.CloseSend()
	w.requestSent()
	return err
}

// current waits until the RPC is committed.
func (s *hedgeStream) current() *try {
	<-s.committed
	<-s.winner.stream.opened
	return s.winner
}

func (s *hedgeStream) RecvMsg(m any) error {
	w := s.current()
	err := w.RecvMsg(m)
	if err != nil || !s.request.rpc.StreamDesc.ServerStreams {
		s.outcome.report(w)
	}
	return err
}

func (s *hedgeStream) Header() (metadata.MD, error) { return s.current().Header() }

func (s *hedgeStream) Trailer() metadata.MD {
	select {
	case <-s.committed:
		return s.current().Trailer()
	default:
		return nil
	}
}

// Context commits the RPC, as it does in gRPC.
func (s *hedgeStream) Context() context.Context {
	s.mu.Lock()
	s.commitToBestLocked()
	s.mu.Unlock()
	return s.current().Context()
}
