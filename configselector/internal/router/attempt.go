package router

import (
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
)

// attempt is one attempt of an RPC: a request as gRPC gets it, as a stream.
type attempt struct {
	grpc.ClientStream
	call     *call
	number   int      // 0 is the first
	earlier  *attempt // nil: none
	decision *decision.Decision
	timer    *tryTimer      // or nil
	count    func()         // counts the attempt in the metrics of the trace's observer; of an attempt after the first
	unary    unary          // the stream of a unary RPC
	finished sync.WaitGroup // until the attempt has ended, with err
	err      error
	once     sync.Once
	unopened bool // gRPC has no stream

	// replay.mu guards these.
	begun bool
	over  bool // it has failed
}

// open hands the attempt to gRPC.
func (a *attempt) open(opts []grpc.CallOption) {
	if a.call.rpc.StreamDesc == nil {
		a.unary.call, a.unary.decision, a.unary.opts, a.unary.attempt = a.call, a.decision, opts, a
		a.ClientStream = &a.unary
		return
	}
	var err error
	if a.ClientStream, err = a.call.open(a.decision, append(opts, grpc.OnFinish(a.finish))); err != nil {
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
	if a.call.rpc.StreamDesc == nil || !a.timer.start() {
		return false
	}
	if a.timer.policy.PerTryTimeout > 0 && a.timer.late == nil {
		// The response starts with its headers, for which the application may not ask in time. The
		// goroutine ends with the attempt.
		go func() { _, _ = a.Header() }()
	}
	return true
}
