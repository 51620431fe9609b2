package xdsclient

import (
	"time"

	"google.golang.org/grpc/backoff"

	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// A server may send the same response again and again: because it answers a NACK at once
// with what was NACKed, or answers every ACK, or without being asked. Such a repetition
// costs next to nothing, in three ways:
//
//   - It is not worked on. What a response leads to depends on the response and on the
//     subscriptions. If neither has changed, there is nothing to do but to count it.
//   - Its answer is held back (replyHold), so that a server that waits for the answer is
//     slowed down. Of several answers that are held back only the last is sent.
//     Anything else lets it go at once: a different response, or a change of the
//     subscriptions, of which the SotW variant tells the server in the same request.
//     Other types are not affected: their answers are due on their own.
//   - A server that does not wait for answers is not read from faster than
//     transport.Pace allows, and HTTP/2's flow control slows it down. As all types share the
//     stream, the pace is a compromise: what is behind the repetitions that are already
//     under way, which are at most a flow control window, is read after those. The pace
//     is high enough to get through a default window (64 KiB) of the smallest responses in
//     seconds, and low enough for the client to be idle almost all the time.
//
// A response that differs in anything but its nonce, the version included, is not a
// repetition, and is neither delayed nor answered late.

// lastResponse is the last response for a type on a stream, as far as it takes to
// recognize a repetition, and to answer and count it. The zero value resembles nothing.
type lastResponse struct {
	version string
	// size is the size in bytes without the nonce, and hash that of all but the nonce,
	// or 0: it is only made of a response that resembles the one before it, so that
	// a response with something new does not pay for it.
	size int
	hash uint64
	// settled says that nothing that the work on a response goes by has changed since
	// the work on this one began.
	settled bool
	// fault, relist and tally are what came of the response.
	fault  string
	relist bool
	tally  tally
	// metered is what the metrics were told of.
	metered meterReading
}

// meterReading is how many resources of a response the metrics count as what.
type meterReading struct{ valid, invalid, unmatched int }

// meter has the metrics count the resources of a response. The lock is not held.
func (ch *serverChannel) meter(t *ResourceType, m meterReading) {
	ch.client.attached.received(ch.server.URI, t, m.valid, m.invalid, m.unmatched)
}

// tally counts what a response has.
type tally struct {
	total, invalid, unchanged, decoded, serverErrors int
	// unasked were dropped because nobody watches them, unmatched of them for their
	// parameters only, and passed because there is a better variant.
	unasked, unmatched, passed int
	// ambiguous counts the choices between variants that xRFC TP2 leaves open.
	ambiguous int
}

// resembles reports whether the response may be a repetition of the last one.
func (l *lastResponse) resembles(r *wire.Response) bool {
	return l.size == r.Size() && l.version == r.Version
}

// repeats reports whether the response is a repetition that needs no work. That hashes
// of two different responses of one size are equal is left to chance, which is 2⁻⁶⁴:
// the seed is the client's secret.
func (l *lastResponse) repeats(hash uint64) bool {
	return l.settled && hash != 0 && hash == l.hash
}

// identify returns the hash of a response that resembles the last one for its type, or 0.
func (ch *serverChannel) identify(r *wire.Response) uint64 {
	ch.client.mu.Lock()
	ts := ch.typeStateOf(r.TypeURL)
	similar := ts != nil && ts.last.resembles(r)
	ch.client.mu.Unlock()
	if !similar {
		return 0
	}
	return r.Hash(ch.client.seed)
}

// disturb notes that something has changed that the work on a response goes by.
func (ts *typeState) disturb() { ts.last.settled = false }

// repeated counts and answers a response if it is a repetition, and reports whether it is.
func (ch *serverChannel) repeated(r *wire.Response, hash uint64) (result ads.Verdict, ok bool) {
	if hash == 0 {
		return ads.VerdictNone, false
	}
	t, metered, result := ch.answerAgain(r, hash)
	if result == ads.VerdictNone {
		return ads.VerdictNone, false
	}
	ch.meter(t, metered)
	return result, true
}

// answerAgain counts and answers a repetition, and returns its type and what the metrics
// count. The verdict is verdictNone if the response is none.
func (ch *serverChannel) answerAgain(r *wire.Response, hash uint64) (*ResourceType, meterReading, ads.Verdict) {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	ts := ch.typeStateOf(r.TypeURL)
	if ts == nil || ch.link.Closed() || !ts.last.repeats(hash) {
		return nil, meterReading{}, ads.VerdictNone
	}
	last := &ts.last
	stats := &ch.client.stats
	stats.Responses++
	stats.Unchanged += uint64(last.tally.unchanged + last.tally.decoded)
	stats.Unasked += uint64(last.tally.unasked)
	stats.Unmatched += uint64(last.tally.unmatched)
	stats.Ambiguous += uint64(last.tally.ambiguous)
	stats.ServerErrors += uint64(last.tally.serverErrors)
	result := ads.VerdictAccepted
	if last.fault != "" {
		stats.Rejected++
		result = ads.VerdictRejected
	}
	ts.relist = ts.relist || last.relist
	if ts.replyAgain(reply{r.Nonce, last.fault}) {
		ch.stream.Notify()
	}
	return ts.typ, last.metered, result
}

// repeatBackoff is how long after the last answer for a type the answer to a repetition
// may be sent: 0.1 s, growing by 2 to 3 s, each ±20 %. A server that repeats itself less
// often than that is answered at once.
var repeatBackoff = backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 3 * time.Second}

// replyHold delays the answers to repetitions. The zero value delays nothing.
type replyHold struct {
	// sent is when the last answer was sent.
	sent time.Time
	// until is when the last of typeState.replies is due, or zero: at once. Those
	// before it are due at once.
	until time.Time
	// held is how many repetitions in a row were answered late.
	held int
}

// begin holds back the answer to a repetition, unless the last one is long ago.
func (h *replyHold) begin() {
	tries := transport.Retries{Config: repeatBackoff, Failed: h.held}
	h.until = h.sent.Add(tries.Next())
	h.held = tries.Failed
	if !time.Now().Before(h.until) {
		h.release()
	}
}

// release lets an answer that is held back go.
func (h *replyHold) release() { h.until, h.held = time.Time{}, 0 }

// replyAgain notes the answer to a repetition. It reports whether the writer has to know.
func (ts *typeState) replyAgain(r reply) bool {
	if held := !ts.hold.until.IsZero(); held && len(ts.replies) > 0 {
		ts.nonce = r.nonce
		last := &ts.replies[len(ts.replies)-1]
		ts.backlog += len(r.nonce) - len(last.nonce)
		*last = r
		return false
	}
	ts.hold.begin()
	ts.enqueueReply(r)
	return true
}

// replyDue reports whether an answer is due, and if not, when one will be: zero if there
// is none.
func (ts *typeState) replyDue() (due bool, at time.Time) {
	switch n := len(ts.replies); {
	case n == 0:
		return false, time.Time{}
	case n > 1 || !time.Now().Before(ts.hold.until):
		return true, time.Time{}
	default:
		return false, ts.hold.until
	}
}
