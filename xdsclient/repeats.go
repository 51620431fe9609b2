package xdsclient

import (
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// A server may send the same response again and again: because it answers a NACK at once
// with the resources that were NACKed, or answers every ACK, or without being asked. Such a repetition costs
// next to nothing, in three ways:
//
//   - It is not worked on. The outcome of a response depends on the response and on the
//     subscriptions. If neither has changed, there is nothing to do but to count it.
//   - From the second repetition on, the reply is held back for a moment (ads.Replies), so that a server that waits for it is
//     slowed down. Of several that are held back only the last is sent. Anything else lets go of it at once: a
//     different response, or a change of the subscriptions, which SotW sends in
//     the same request. Other types are not affected: their replies are due on their own.
//   - A server that does not wait for replies is not read from faster than transport.Pace
//     allows, and HTTP/2's flow control slows it down. As all types share the stream, the pace
//     is a compromise: responses behind the repetitions that are already under way, which are at
//     most a flow control window, are read after those. The pace is high enough to get through a
//     default window (64 KiB) of the smallest responses in seconds, and low enough for the
//     client to be idle almost all the time.
//
// A response that differs in anything but its nonce, the version included, is not a
// repetition, and is neither delayed nor answered late.

// repetition recognizes a response that only repeats the last one for its type on a stream. The
// zero value recognizes none.
type repetition struct {
	// hash is that of the last response without its nonce. That hashes of two different responses are equal is left to chance,
	// which is 2⁻⁶⁴: the seed is the client's secret.
	hash uint64
	// settled says that nothing has changed that the work on a response goes by since the work
	// on the last one began.
	settled bool
	// again says that there was a repetition of the response. Its reply was not held back: a server that is asked for one more
	// name may have the same response for both requests.
	again bool
}

// disturb notes that something has changed that the work on a response goes by.
func (p *repetition) disturb() { p.settled = false }

// outcome is the result of a response: the text of the NACK, or "", and the counts.
type outcome struct {
	nack string
	// timed says that resources had a TTL, which a repetition extends, and that their type has Renew.
	timed bool
	// total counts the resources.
	total, invalid, unchanged, decoded int
	// unasked were dropped as they are not watched, unmatched of them for their parameters only,
	// and passed because there is a better variant.
	unasked, unmatched, passed int
	// ambiguous counts the choices between variants that xRFC TP2 leaves open.
	ambiguous int
	// serverErrors counts the errors in place of resources that are watched, unaskedErrors those of others, and invalidErrors
	// those that cannot be used.
	serverErrors, unaskedErrors, invalidErrors int
}

// add adds a response.
func (stats *Stats) add(o *outcome) {
	stats.Responses++
	stats.Decoded += uint64(o.decoded)
	stats.Unchanged += uint64(o.unchanged)
	stats.Unasked += uint64(o.unasked + o.unaskedErrors)
	stats.Unmatched += uint64(o.unmatched)
	stats.Ambiguous += uint64(o.ambiguous)
	stats.ServerErrors += uint64(o.serverErrors)
	if o.nack != "" {
		stats.Rejected++
	}
}

// answerAgain counts and answers a repetition, and returns the state of its type, or nil if it is none.
func (ch *managementServer) answerAgain(r *wire.Response, hash uint64) (*typeState, error) {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	ts := ch.typeStateOf(r.TypeURL)
	if ts == nil || ts.last.timed || !ts.settled || hash != ts.hash {
		return nil, nil
	}
	again := ts.last
	again.unchanged, again.decoded = again.unchanged+again.decoded, 0
	ch.client.stats.add(&again)
	due, err := ts.replyAgain(ads.Reply{Nonce: r.Nonce, Fault: again.nack})
	if due {
		ch.notify()
	}
	return ts, err
}
