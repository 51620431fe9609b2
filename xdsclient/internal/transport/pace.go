package transport

import (
	"context"
	"time"

	"github.com/dynxds/dynxds/internal/retries"
)

// The cost of reading a message: at most 400 messages and 10 MB are read in a second.
const (
	readCost     = time.Second / 400
	readByteCost = time.Second / 10e6
	// readBurst is the cost that may be outstanding: 64 small messages are read at once.
	readBurst = 64 * readCost
)

// A Pace limits the rate at which messages are read that a server has little reason to send:
// repetitions, responses without a subscription, and requests for load reports. The zero
// value is ready for use.
type Pace struct {
	// paid is when the cost of all messages that were read is paid.
	paid time.Time
}

// Wait counts a message of the given size, and returns when the next one may be read, or the
// context ends.
func (p *Pace) Wait(ctx context.Context, size int) {
	now := time.Now()
	if p.paid.Before(now) {
		p.paid = now
	}
	p.paid = p.paid.Add(readCost + time.Duration(size)*readByteCost)
	rest := p.paid.Sub(now)
	if rest > readBurst {
		_ = retries.Wait(ctx, rest) // a stream that has ended has no next response
	}
}
