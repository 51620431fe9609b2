package router

import (
	"context"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// open hands an attempt to gRPC.
func (p *replay) open(a *attempt) {
	opts := p.opts
	if a.number > 0 {
		opts = slices.Clip(opts) // The first attempt uses the room behind them.
	}
	if p.hedges {
		a.hedged = true
		a.made.Add(1)
	}
	if p.codec.CodecV2 != nil && (a.number > 0 || p.hedges && p.request.call.unary()) {
		opts = append(opts, grpc.ForceCodecV2(p.codec))
	}
	a.open(opts)
}

// begin opens an attempt that is not the first, and sends the buffer. If that fails, the attempt has ended, which its
// followers find.
func (p *replay) begin(a *attempt) {
	p.open(a)
	p.mu.Lock()
	messages, closed, complete := p.buffer, p.closed, p.complete
	p.mu.Unlock()
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

// current returns the attempt that the application uses, once it has begun.
func (p *replay) current() (a *attempt, decided bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.currentLocked()
}

func (p *replay) currentLocked() (a *attempt, decided bool) {
	for p.winner == nil && p.launching {
		if a := p.latest; a.begun && !a.over {
			return a, false // A hedge is about to begin.
		}
		p.changed.Wait()
	}
	if p.winner != nil {
		p.buffer = nil
		return p.winner, true
	}
	return p.latest, false
}

// followed waits until the RPC is decided for a or an attempt after it, and returns the winner.
func (p *replay) followed(a *attempt) *attempt {
	for {
		if md, err := a.Header(); md != nil || err != nil {
			return p.answered(a)
		}
		next := p.after(a)
		if next == p.decidedFor() {
			return next
		}
		a = next
	}
}

// keep buffers a message, or decides the RPC if there is no room, and returns the attempt to
// send it on.
func (p *replay) keep(m any) (a *attempt, decided bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, decided = p.currentLocked()
	if decided || p.request.call.unary() || p.put(m) {
		return a, decided
	}
	p.decideLocked(a)
	return a, true
}

// fits reports whether the RPC can be sent again. What does not fit of a stream has decided it.
func (p *replay) fits() bool {
	return !p.request.call.unary() || len(p.buffer) > 0 || p.put(p.first.message)
}

// put adds a message to the buffer (gRFC A6, "Memory Management (Buffering)"). It reports false if the message cannot be
// encoded, or there is no room.
func (p *replay) put(m any) bool {
	e, err := p.codec.Encode(m)
	if p.left -= len(e) + frameHeader; err != nil || p.left < 0 {
		return false
	}
	p.buffer = append(p.buffer, e)
	return true
}

func (p *replay) SendMsg(m any) error {
	a, decided := p.keep(m)
	err := a.SendMsg(m)
	if err == nil && a.timer != nil && !p.request.call.unary() && !p.request.rpc.StreamDesc.ClientStreams {
		p.sendEnded(false)
	}
	if err != io.EOF || decided {
		return err
	}
	// The attempt has ended. Header does not block now, and unlike RecvMsg it may be called
	// by the sender.
	if header, _ := a.Header(); header != nil {
		p.answered(a)
		return err
	}
	if next := p.after(a); next == a || next.unopened {
		return err
	}
	return nil // The next attempt was sent m too.
}

func (p *replay) RecvMsg(m any) error {
	for {
		a, decided := p.current()
		if !decided && p.hedges {
			a, decided = p.followed(a), true
		}
		err := a.RecvMsg(m)
		if !decided {
			if err != nil && err != io.EOF {
				if header, _ := a.Header(); header == nil && p.after(a) != a {
					continue
				}
			}
			p.answered(a)
		}
		if err != nil || p.request.call.unary() || !p.request.rpc.StreamDesc.ServerStreams {
			p.asked.report(a, p.request.call.app.Context)
		}
		return err
	}
}

// Header decides the RPC, as in gRPC. A unary RPC has no headers until RecvMsg has made it.
func (p *replay) Header() (metadata.MD, error) {
	a, decided := p.current()
	if p.request.call.unary() && !decided {
		return nil, nil
	}
	return p.followed(a).Header()
}

func (p *replay) Trailer() metadata.MD {
	a, _ := p.current()
	return a.Trailer()
}

// Context decides the RPC, as in gRPC, unless it is unary.
func (p *replay) Context() context.Context {
	a, decided := p.current()
	if p.request.call.unary() && !decided {
		return p.request.decision.Context
	}
	return p.answered(a).Context()
}

func (p *replay) CloseSend() error { return p.sendEnded(true) }

// sendEnded is called when the application sends no more messages; closed: by CloseSend.
func (p *replay) sendEnded(closed bool) (err error) {
	p.mu.Lock()
	a, _ := p.currentLocked()
	p.complete, p.closed = true, p.closed || closed
	p.mu.Unlock()
	if closed {
		err = a.CloseSend()
	}
	if a.requestSent() && p.hedges {
		go p.followed(a)
	}
	return err
}
