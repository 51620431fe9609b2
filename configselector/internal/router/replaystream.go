package router

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// newReplay returns the stream of an RPC, which is a replay or a unaryReplay, that has begun.
func newReplay(r *request, retry retrier) (grpc.ClientStream, error) {
	if r.call.unary() {
		u := new(unaryReplay)
		u.p.begin(r, retry)
		u.ClientStream = r.attempt.ClientStream
		return u, nil
	}
	p, first := new(replay), &r.attempt
	p.begin(r, retry)
	go p.follow(first)
	if first.unopened {
		p.mu.Lock()
		defer p.mu.Unlock()
		if a := p.begunLocked(); a.unopened {
			return nil, a.err
		}
	}
	return p, nil
}

// unaryReplay is a unary RPC that may be sent again: its first attempt, and once RecvMsg has made the RPC, the one that is the RPC.
type unaryReplay struct {
	grpc.ClientStream
	p replay
}

// Context returns the context of the request until RecvMsg has made the RPC: the context of the first attempt may end before.
func (u *unaryReplay) Context() context.Context {
	if u.p.reply == nil {
		return u.p.request.decision.Context
	}
	return u.ClientStream.Context()
}

func (u *unaryReplay) RecvMsg(m any) error {
	p := &u.p
	if p.reply != nil {
		return io.EOF
	}
	p.reply = m
	p.follow(&p.request.attempt)
	a := p.settled()
	u.ClientStream = a
	p.asked.report(a, a.call.app.Context)
	if !p.hedges || a.err != nil {
		return a.err
	}
	defer a.reply.Free()
	if err := p.codec.Unmarshal(a.reply, m); err != nil {
		return status.Errorf(codes.Internal, "dynxds: the response message cannot be decoded: %v", err)
	}
	return nil
}

// settled waits until the RPC is decided, and its attempt is answered or has ended.
func (p *replay) settled() *attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.winner == nil || !p.winner.settled {
		p.changed.Wait()
	}
	return p.winner
}

// currentLocked returns the attempt that the application uses; nil: the next one has not begun yet.
func (p *replay) currentLocked() *attempt {
	if a := p.latest; p.winner == nil && a.begun && !a.settled {
		return a
	}
	return p.winner
}

// begunLocked waits until there is a current attempt.
func (p *replay) begunLocked() *attempt {
	for p.currentLocked() == nil {
		p.changed.Wait()
	}
	return p.currentLocked()
}

// SendMsg keeps the message for attempts that follow, or decides the RPC if there is no room.
func (p *replay) SendMsg(m any) error {
	p.mu.Lock()
	kept, only := p.winner == nil && p.put(m), !p.request.rpc.StreamDesc.ClientStreams
	p.complete = p.complete || only
	a := p.currentLocked()
	if !kept {
		if a = p.begunLocked(); p.winner == nil {
			p.decideLocked(a)
		}
	}
	p.mu.Unlock()
	if a == nil {
		return nil // openLocked sends it.
	}
	err := a.SendMsg(m)
	if err == nil && only {
		a.timer.start()
	}
	if err != io.EOF || !kept {
		return err
	}
	// The attempt has ended.
	p.mu.Lock()
	defer p.mu.Unlock()
	for !a.settled {
		p.changed.Wait()
	}
	if w := p.winner; w == nil || w != a && !w.unopened {
		return nil // The next attempt is sent m too.
	}
	return err
}

func (p *replay) CloseSend() (err error) {
	p.mu.Lock()
	p.closed, p.complete = true, true
	a := p.currentLocked()
	p.mu.Unlock()
	if a != nil {
		err = a.CloseSend()
		a.timer.start()
	}
	return err
}

func (p *replay) RecvMsg(m any) error {
	a := p.settled()
	err := a.RecvMsg(m)
	if err != nil || !a.call.rpc.StreamDesc.ServerStreams {
		p.asked.report(a, a.call.app.Context)
	}
	return err
}

// Header decides the RPC, as in gRPC.
func (p *replay) Header() (metadata.MD, error) { return p.settled().Header() }

func (p *replay) Trailer() metadata.MD {
	p.mu.Lock()
	a := p.currentLocked()
	p.mu.Unlock()
	if a == nil {
		return nil
	}
	return a.Trailer()
}

// Context decides the RPC, as in gRPC.
func (p *replay) Context() context.Context {
	p.mu.Lock()
	a := p.begunLocked()
	if p.winner == nil {
		p.decideLocked(a)
	}
	p.mu.Unlock()
	return a.Context()
}
