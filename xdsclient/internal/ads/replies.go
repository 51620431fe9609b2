package ads

import (
	"errors"
	"time"

	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// Reply answers a response: a NACK if it has an error, else an ACK.
type Reply struct{ Nonce, Fault string }

// size is roughly the size of a reply in memory, in bytes.
func (r Reply) size() int { return len(r.Nonce) + len(r.Fault) + 64 }

// MaxBacklog bounds, in bytes, the replies that wait for a server that does not read them. One
// reply may always wait.
const MaxBacklog = 4 << 20

// ErrUnread is the reason if a server sends responses and does not read the replies.
var ErrUnread = errors.New("the server does not read the answers to its responses")

// repeatPause is how long after the last reply for a type that to a repetition may be sent. A server that repeats itself
// less often than that is answered at once.
const repeatPause = time.Second

// Replies are the replies for one type that are due on a stream. The zero value has none, and
// holds none back.
type Replies struct {
	// Nonce is that of the last response.
	Nonce string
	queue []Reply
	// backlog is the size of the queue in bytes.
	backlog int

	// sent is when the last reply was sent.
	sent time.Time
	// until is when the last of the queue is due, or zero: at once. The others are due
	// at once.
	until time.Time
}

// Add adds the reply to a response that is no repetition, which lets go of one that is held
// back. In delta each reply is sent, in SotW only the last.
func (q *Replies) Add(r Reply, d wire.Dialect) error {
	q.until = time.Time{}
	return q.enqueue(r, d)
}

func (q *Replies) enqueue(r Reply, d wire.Dialect) error {
	q.Nonce = r.Nonce
	if !d.Incremental {
		q.queue, q.backlog = q.queue[:0], 0
	}
	first := len(q.queue) == 0
	q.queue = append(q.queue, r)
	if q.backlog += r.size(); !first && q.backlog > MaxBacklog {
		return ErrUnread
	}
	return nil
}

// AddAgain adds the reply to a repetition, which is held back. It takes the place of another
// one that is held back. It reports whether Due changes.
func (q *Replies) AddAgain(r Reply, d wire.Dialect) (due bool, err error) {
	if n := len(q.queue); n > 0 && !q.until.IsZero() {
		last := &q.queue[n-1]
		q.Nonce = r.Nonce
		q.backlog += r.size() - last.size()
		*last = r
		return false, nil
	}
	if q.until = q.sent.Add(repeatPause); !time.Now().Before(q.until) {
		q.until = time.Time{}
	}
	return true, q.enqueue(r, d)
}

// Due reports whether a reply is due, and if not, when one will be: zero if there is none.
func (q *Replies) Due() (due bool, at time.Time) {
	switch n := len(q.queue); {
	case n == 0:
		return false, time.Time{}
	case n > 1 || !time.Now().Before(q.until):
		return true, time.Time{}
	default:
		return false, q.until
	}
}

// MoveTo has a request carry the reply that waits longest, if there is one.
func (q *Replies) MoveTo(r *wire.Request) {
	if len(q.queue) == 0 {
		q.queue = nil
		return
	}
	first := q.queue[0]
	r.Nonce, r.Fault = first.Nonce, first.Fault
	q.queue[0] = Reply{}
	q.queue = q.queue[1:]
	q.backlog -= first.size()
	q.sent = time.Now()
	if len(q.queue) == 0 {
		q.until = time.Time{}
	}
}

// Clear drops the replies.
func (q *Replies) Clear() { q.queue, q.backlog = nil, 0 }
