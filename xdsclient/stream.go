package xdsclient

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// The ADS stream to a management server: another one is opened whenever one ends. One goroutine reads, and one writes while a
// stream is open. What they read and write is decided in handler.go.

// notify has the writer look for a request that is due.
func (ch *managementServer) notify() { ch.wake.Give() }

// run keeps a stream open on the connection, which it releases when it returns. It waits longer
// with every attempt on which nothing was accepted. The wait counts from the start of
// the attempt: a stream that ends after a long life is replaced at once, one that ends right
// after its first answer is not.
func (ch *managementServer) run() {
	conn := ch.share.conn
	defer conn.Release()
	failures := 0
	for ch.ctx.Err() == nil {
		started := time.Now()
		accepted, err := ch.attempt()
		if ch.ctx.Err() != nil {
			return
		}
		if ch.ended(err) {
			continue
		}
		if accepted {
			failures = 0
		}
		next := started.Add(retries.After(failures, ch.client.options.Backoff))
		failures++
		ch.nextAttempt.Store(&next)
		conn.Pause(ch.ctx, time.Until(next))
		ch.nextAttempt.Store(nil)
	}
}

// attempt opens a stream and stays with it until it ends. It reports whether a response on it was accepted.
func (ch *managementServer) attempt() (accepted bool, err error) {
	cc, err := ch.share.conn.Open()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancelCause(ch.ctx)
	defer cancel(nil)
	stream, err := cc.NewStream(ctx, transport.StreamDesc, ch.chooseDialect().Method(), grpc.ForceCodecV2(transport.Codec{}))
	if err != nil {
		return false, err
	}
	ch.opened()
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := ch.write(ctx, stream); err != nil {
			cancel(err)
		}
	}()
	accepted, err = ch.read(ctx, stream)
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
func (ch *managementServer) read(ctx context.Context, stream grpc.ClientStream) (accepted bool, err error) {
	var pace transport.Pace
	for {
		var message mem.Buffer
		if err := stream.RecvMsg(&message); err != nil {
			if err == io.EOF {
				err = transport.ErrNoAnswer
			}
			return accepted, err
		}
		size := message.Len()
		began := time.Now()
		ok, done, err := ch.receive(message.ReadOnlyData())
		rest := ch.share.work.Done(began)
		message.Free()
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
			ch.delivered()
		case <-ctx.Done():
			return accepted, ctx.Err()
		}
		if err := retries.Wait(ctx, rest); err != nil {
			return accepted, err
		}
		ch.reading()
	}
}

// write sends the requests that are due until the stream ends. It returns an error only if the
// client is to blame: read returns why a stream broke.
func (ch *managementServer) write(ctx context.Context, stream grpc.ClientStream) error {
	node := ch.client.config.Node
	for {
		r, fresh, at := ch.nextRequest()
		if r == nil {
			var due <-chan time.Time
			if !at.IsZero() {
				due = time.After(time.Until(at))
			}
			select {
			case <-ch.wake:
			case <-due:
			case <-ctx.Done():
				return nil
			}
			continue
		}
		r.Node, node = node, nil
		message, err := ch.dialect.Encode(r)
		if err != nil {
			return fmt.Errorf("cannot make a request for %s: %w", r.TypeURL, err)
		}
		if err := stream.SendMsg(message); err != nil {
			return nil
		}
		ch.sent(fresh)
	}
}
