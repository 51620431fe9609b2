package transport

import (
	"context"
	"time"
)

// What reading a message costs of the time in which such messages may be read: at most
// 640 a second, and 10 MB.
const (
	readCost     = time.Second / 640
	readByteCost = time.Second / 10e6
	// readBurst is how much time may be overdrawn: 64 small responses are read at once.
	readBurst = 64 * readCost
)

// A Pace bounds how fast messages are read of which a server sends few or says nothing
// new with: repetitions, responses that nothing is subscribed to, and orders of load
// reports. The zero value is ready for use.
type Pace struct {
	// paid is until when what was read is paid for.
	paid time.Time
}

// Wait returns when the next message may be read after one of the given size, or the
// context ends.
func (p *Pace) Wait(ctx context.Context, size int) {
	now := time.Now()
	if p.paid.Before(now) {
		p.paid = now
	}
	p.paid = p.paid.Add(readCost + time.Duration(size)*readByteCost)
	rest := p.paid.Sub(now)
	if rest <= readBurst {
		return
	}
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
