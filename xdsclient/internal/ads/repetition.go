package ads

// A server may send the same response again and again: because it answers a NACK at once
// with the resources that were NACKed, or answers every ACK, or without being asked. Such a repetition costs
// next to nothing, in three ways:
//
//   - It is not worked on. The outcome of a response depends on the response and on the
//     subscriptions. If neither has changed, there is nothing to do but to count it.
//   - From the second repetition on, the reply is held back for a moment (Replies), so that a server that waits for it is
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

// Repetition recognizes a response that only repeats the last one for its type on a stream. The
// zero value recognizes none.
type Repetition struct {
	// hash is that of the last response without its nonce.
	hash uint64
	// settled says that nothing has changed that the work on a response goes by since the work
	// on the last one began.
	settled bool
	// again says that there was a repetition of the response. Its reply was not held back: a server that is asked for one more
	// name may have the same response for both requests.
	again bool
}

// Repeats reports whether a response with the hash is a repetition that needs no work. That hashes of two different
// responses are equal is left to chance, which is 2⁻⁶⁴: the seed is the client's secret.
func (p *Repetition) Repeats(hash uint64) bool { return p.settled && hash == p.hash }

// Disturb notes that something has changed that the work on a response goes by.
func (p *Repetition) Disturb() { p.settled = false }

// Settled reports whether nothing has changed that the work on a response goes by, since the
// work on the last one began.
func (p *Repetition) Settled() bool { return p.settled }
