package xdsclient

import (
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// outcome is the result of a response: the text of the NACK, or "", and the counts.
type outcome struct {
	nack string
	tally
	// metered are the counts that the metrics were given.
	metered meterReading
	// timed says that resources had a TTL, which a repetition extends, and that their type has Renew.
	timed bool
}

// meterReading is how many resources of a response the metrics count as what.
type meterReading struct{ valid, invalid, unmatched int }

// tally counts what a response has.
type tally struct {
	total, invalid, unchanged, decoded, serverErrors int
	// unasked were dropped as they are not watched, unmatched of them for their parameters only,
	// and passed because there is a better variant.
	unasked, unmatched, passed int
	// ambiguous counts the choices between variants that xRFC TP2 leaves open.
	ambiguous int
}

// add adds a response.
func (stats *Stats) add(o *outcome) {
	stats.Responses++
	stats.Decoded += uint64(o.decoded)
	stats.Unchanged += uint64(o.unchanged)
	stats.Unasked += uint64(o.unasked)
	stats.Unmatched += uint64(o.unmatched)
	stats.Ambiguous += uint64(o.ambiguous)
	stats.ServerErrors += uint64(o.serverErrors)
	if o.nack != "" {
		stats.Rejected++
	}
}

// answerAgain counts and answers a repetition (ads.Requests.Repeats), and returns the state of its type, or nil if it
// is none.
func (ch *managementServer) answerAgain(r *wire.Response, hash uint64) (*typeState, error) {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	ts := ch.typeStateOf(r.TypeURL)
	if ts == nil || ts.last.timed || ch.link.Closed() || !ts.Repeats(hash) {
		return nil, nil
	}
	again := ts.last
	again.unchanged, again.decoded = again.unchanged+again.decoded, 0
	ch.client.stats.add(&again)
	due, err := ts.ReplyAgain(ads.Reply{Nonce: r.Nonce, Fault: again.nack})
	if due {
		ch.notify()
	}
	return ts, err
}
