package router

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// attempt is an RPC as gRPC gets it, as a stream: a request, one of the times that it is sent, or its mirror.
type attempt struct {
	grpc.ClientStream // a unary if the RPC is unary
	call              *call
	decision          *decision.Decision
	opts              []grpc.CallOption
	unopened          bool           // gRPC has no stream
	finished          sync.WaitGroup // until the attempt has ended, with err
	err               error
	once              sync.Once

	// These are used by a replay, whose mu guards begun and settled.
	number  int             // 0 is the first
	earlier *attempt        // nil: none
	timer   *tryTimer       // or nil
	count   func()          // counts the attempt in the metrics of the trace's observer; of an attempt after the first
	reply   mem.BufferSlice // if the RPC is unary and hedged
	begun   bool            // it has a stream, to which all messages so far were sent
	settled bool            // it is known whether the attempt has been answered or has failed

	// These are used if the RPC is unary, see the type unary.
	sent    bool // gRPC has got the RPC
	message any
	header  metadata.MD
	trailer metadata.MD
	peer    peer.Peer
}

// of makes a an attempt of c, which finish ends.
func (a *attempt) of(c *call, d *decision.Decision, opts []grpc.CallOption) {
	a.call, a.decision, a.opts = c, d, opts
	a.finished.Add(1)
}

// open hands the attempt to gRPC, or prepares that if it is unary.
func (a *attempt) open() {
	if a.call.unary() {
		a.ClientStream = (*unary)(a)
		return
	}
	var err error
	if a.ClientStream, err = a.call.open(a.decision, append(a.opts[:len(a.opts):len(a.opts)], grpc.OnFinish(a.finish))); err != nil {
		a.finish(err)
		a.unopened = true
		a.ClientStream = httpfilter.EndedStream(a.decision, a.err, nil)
	}
}

// finish is called when the attempt has ended, maybe more than once. The trace hears of it before anything that it leads to.
func (a *attempt) finish(err error) {
	a.once.Do(func() {
		a.err = a.timer.explain(err)
		a.timer.end(nil)
		if t := a.decision.Trace(); t != nil {
			t.AttemptEnded(rpctrace.Attempt{Number: a.number + 1, Cluster: a.decision.Cluster, Err: a.err})
		}
		a.finished.Done()
	})
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

// unary is an attempt of a unary RPC as a stream of one message, so that filters, retries and mirrors only deal with
// streams. SendMsg keeps the message, and RecvMsg makes the RPC. It is not safe for concurrent use.
type unary attempt

func (u *unary) Context() context.Context {
	if u.peer.Addr == nil {
		return u.decision.Context
	}
	return peer.NewContext(u.decision.Context, &u.peer)
}

func (u *unary) Header() (metadata.MD, error) { return u.header, nil }
func (u *unary) Trailer() metadata.MD         { return u.trailer }
func (u *unary) CloseSend() error             { return nil }

func (u *unary) SendMsg(m any) error {
	if u.sent {
		return io.EOF
	}
	u.message = m
	return nil
}

func (u *unary) RecvMsg(reply any) error {
	if u.sent {
		return io.EOF
	}
	u.sent = true
	opts := append(u.opts, grpc.Header(&u.header), grpc.Trailer(&u.trailer), grpc.Peer(&u.peer))
	(*attempt)(u).finish(u.call.invoke(u.decision, u.message, reply, opts))
	return u.err
}
