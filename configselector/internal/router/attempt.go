package router

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// attempt is an RPC as gRPC gets it, as a stream: a request, one of the times that it is sent, or its mirror.
type attempt struct {
	grpc.ClientStream // a unary if the RPC is unary
	request           *request
	number            int      // 0 is the first
	earlier           *attempt // nil: none
	decision          *decision.Decision
	timer             *tryTimer      // or nil
	count             func()         // counts the attempt in the metrics of the trace's observer; of an attempt after the first
	finished          sync.WaitGroup // until the attempt has ended, with err
	err               error
	once              sync.Once
	unopened          bool // gRPC has no stream

	// replay.mu guards these.
	begun bool
	over  bool // it has failed

	// These are used if the RPC is unary, see the type unary.
	hedged  bool
	sent    atomic.Bool // gRPC has got the RPC
	opts    []grpc.CallOption
	message any
	made    sync.WaitGroup // until the RPC has ended, if it is hedged
	header  metadata.MD
	trailer metadata.MD
	peer    peer.Peer
	reply   mem.BufferSlice // if the RPC is hedged
}

// of makes a an attempt of r, which finish ends.
func (a *attempt) of(r *request, d *decision.Decision) {
	a.request, a.decision = r, d
	a.finished.Add(1)
}

// open hands the attempt to gRPC, or prepares that if it is unary.
func (a *attempt) open(opts []grpc.CallOption) {
	c := a.request.call
	if c.unary() {
		a.opts, a.ClientStream = opts, (*unary)(a)
		return
	}
	var err error
	if a.ClientStream, err = c.open(a.decision, append(opts, grpc.OnFinish(a.finish))); err != nil {
		a.finish(err)
		a.unopened = true
		a.ClientStream = httpfilter.EndedStream(a.decision, a.err, nil)
	}
}

// finish is called when the attempt has ended, maybe more than once. The trace hears of it before anything that it leads to.
func (a *attempt) finish(err error) {
	a.once.Do(func() {
		a.err = a.timer.explain(err)
		a.timer.end()
		attemptEnded(a.decision, a.number+1, a.err)
		a.finished.Done()
	})
}

// attemptEnded is called when the n-th attempt of an RPC has ended.
func attemptEnded(d *decision.Decision, n int, err error) {
	if t := d.Trace(); t != nil {
		t.AttemptEnded(rpctrace.Attempt{Number: n, Cluster: d.Cluster, Err: err})
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
	case err == nil:
		a.timer.received()
	case err != io.EOF:
		a.finish(err) // Another goroutine may be about to finish the stream.
		err = a.timer.explain(err)
	}
	return err
}

// requestSent is called when all messages of the request of a stream have been sent. The timeouts begin, and requestSent
// reports whether they begin now.
func (a *attempt) requestSent() bool {
	if a.request.call.unary() || !a.timer.start() {
		return false
	}
	if a.timer.policy.PerTryTimeout > 0 && a.timer.late == nil {
		// The response starts with its headers, for which the application may not ask in time. The
		// goroutine ends with the attempt.
		go func() { _, _ = a.Header() }()
	}
	return true
}

// unary is an attempt of a unary RPC as a stream of one message, so that filters, retries and mirrors only deal with
// streams. SendMsg keeps the message, and RecvMsg makes the RPC. It is not safe for concurrent use, unless it is hedged: then
// the first of Header and RecvMsg makes the RPC, and RecvMsg decodes the reply.
type unary attempt

func (u *unary) Context() context.Context {
	if u.peer.Addr == nil {
		return u.decision.Context
	}
	return peer.NewContext(u.decision.Context, &u.peer)
}

func (u *unary) Header() (metadata.MD, error) {
	if u.hedged {
		_ = u.send(&u.reply)
	}
	return u.header, nil
}

func (u *unary) Trailer() metadata.MD { return u.trailer }

func (u *unary) CloseSend() error { return nil }

func (u *unary) SendMsg(m any) error {
	if u.sent.Load() {
		return io.EOF
	}
	u.message = m
	return nil
}

func (u *unary) RecvMsg(reply any) error {
	if !u.hedged {
		if u.sent.Load() {
			return io.EOF
		}
		return u.send(reply)
	}
	if err := u.send(&u.reply); err != nil || u.reply == nil {
		return err
	}
	defer u.reply.Free()
	if err := grpcbridge.CodecOf(u.opts).Unmarshal(u.reply, reply); err != nil {
		return status.Errorf(codes.Internal, "dynxds: the response message cannot be decoded: %v", err)
	}
	return nil
}

// send makes the RPC, unless it is made already, and returns its error when it has ended.
func (u *unary) send(reply any) error {
	if u.sent.Swap(true) {
		u.made.Wait()
		return u.err
	}
	opts := append(u.opts, grpc.Header(&u.header), grpc.Trailer(&u.trailer), grpc.Peer(&u.peer))
	(*attempt)(u).finish(u.request.call.invoke(u.decision, u.message, reply, opts))
	if u.hedged {
		u.made.Done()
	}
	return u.err
}

// A unary request is a stream too: the application's own RPC as long as no filter looks at the response (see Routes.Unary), and
// otherwise the attempt that begun returns.

func (r *request) begun() grpc.ClientStream {
	if r.attempt == nil {
		r.attempt = new(attempt)
		r.attempt.of(r, &r.decision)
		r.attempt.open(r.unreported(nil))
	}
	return r.attempt.ClientStream
}

func (r *request) Context() context.Context     { return r.begun().Context() }
func (r *request) Header() (metadata.MD, error) { return r.begun().Header() }
func (r *request) Trailer() metadata.MD         { return r.begun().Trailer() }
func (r *request) CloseSend() error             { return nil }
func (r *request) SendMsg(m any) error          { return r.begun().SendMsg(m) }
func (r *request) RecvMsg(m any) error          { return r.begun().RecvMsg(m) }
