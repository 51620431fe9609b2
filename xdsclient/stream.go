package xdsclient

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// stream opens an ADS stream and stays with it until it ends. It reads on the
// caller's goroutine and writes on another, which has ended when it returns.
func (ch *serverChannel) stream(ctx context.Context, cc *grpc.ClientConn) (verdict, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s, err := cc.NewStream(ctx, transport.StreamDesc, ch.protocol.Method(),
		grpc.ForceCodecV2(transport.Codec{}), grpc.MaxCallRecvMsgSize(ch.client.options.maxMessageSize))
	if err != nil {
		return verdictNone, err
	}
	ch.opened()
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := ch.write(ctx, s); err != nil {
			cancel(err)
		}
	}()
	best, err := ch.read(ctx, s)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(nil)
	<-written
	return best, err
}

// read handles responses until the stream ends. It reads the next only when the
// watchers are done with the last (gRFC A88's flow control), and responses that say
// nothing new not faster than readPace allows. The verdict is the best of all responses.
func (ch *serverChannel) read(ctx context.Context, s grpc.ClientStream) (best verdict, err error) {
	var pace transport.Pace
	for {
		var f transport.Frame
		if err := s.RecvMsg(&f); err != nil {
			if err == io.EOF {
				err = transport.ErrNoAnswer
			}
			return best, err
		}
		size := len(f.Bytes())
		v, delivery, err := ch.handle(f.Bytes())
		f.Free()
		if err != nil {
			return best, err
		}
		best = max(best, v)
		if delivery == nil {
			pace.Wait(ctx, size)
			continue
		}
		select {
		case <-delivery.finished:
			ch.delivered(delivery)
		case <-ctx.Done():
			return best, ctx.Err()
		}
	}
}

// delivered lets the requests go that were held back during a delivery.
func (ch *serverChannel) delivered(d *delivery) {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	ch.delivery = nil
	if ch.state == linkClosed {
		return
	}
	ch.expiry.start()
	ch.expiry.arm()
	ch.notify()
}

// write sends the requests that are due until the stream ends. It returns an
// error only if it is the client's fault: reading tells why a stream broke.
func (ch *serverChannel) write(ctx context.Context, s grpc.ClientStream) error {
	first := true
	for {
		r, fresh, at := ch.nextRequest()
		if r == nil {
			if !ch.awaitRequest(ctx, at) {
				return nil
			}
			continue
		}
		if first {
			r.Node, first = ch.client.config.Node, false
		}
		message, err := ch.protocol.Encode(r)
		if err != nil {
			return fmt.Errorf("cannot make a request for %s: %w", r.TypeURL, err)
		}
		if err := s.SendMsg(message); err != nil {
			return nil
		}
		ch.sent(r.TypeURL, fresh)
	}
}

// awaitRequest returns when a request may be due: if it is told so, or at the given
// time, unless that is zero. It reports whether the context still goes on.
func (ch *serverChannel) awaitRequest(ctx context.Context, at time.Time) bool {
	var due <-chan time.Time
	if !at.IsZero() {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ch.wake:
		return true
	case <-due:
		return true
	case <-ctx.Done():
		return false
	}
}

// nextRequest returns a request that is due, and the subscriptions it makes known to the
// server; or else nil, and when the next one will be due if nothing changes until then,
// which is zero if none will.
func (ch *serverChannel) nextRequest() (r *wire.Request, fresh []*subscription, at time.Time) {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	if ch.client.batches > 0 {
		return nil, nil, time.Time{}
	}
	for _, ts := range ch.types {
		if r, fresh := ts.next(ch.delivery != nil); r != nil {
			return r, fresh, time.Time{}
		}
		if _, due := ts.replyDue(); !due.IsZero() && (at.IsZero() || due.Before(at)) {
			at = due
		}
	}
	return nil, nil, at
}

// sent starts the resource timers of what a request asked for (gRFC A57).
func (ch *serverChannel) sent(typeURL string, fresh []*subscription) {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	ch.client.stats.Requests++
	ts := ch.typeStateOf(typeURL)
	if ts == nil || !ch.streaming() {
		return
	}
	for _, s := range fresh {
		if s.state == subscriptionSending {
			ch.expiry.expect(ts, s)
		}
	}
}
