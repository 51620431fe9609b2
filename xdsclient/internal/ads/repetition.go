package ads

import "github.com/dynxds/dynxds/xdsclient/internal/ads/wire"

// A server may send the same response again and again: because it answers a NACK at once
// with the resources that were NACKed, or answers every ACK, or without being asked. Such a repetition costs
// next to nothing, in three ways:
//
//   - It is not worked on. The outcome of a response depends on the response and on the
//     subscriptions. If neither has changed, there is nothing to do but to count it.
//   - The reply is held back for a moment (Replies), so that a server that waits for it is slowed down. Of
//     several that are held back only the last is sent. Anything else lets go of it at once: a
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
	version string
	// size is the size of the last response in bytes, without the nonce, and hash that of all
	// but the nonce, or 0: it is only made of a response that resembles the one before it, so
	// that a response with something new does not pay for it.
	size int
	hash uint64
	// settled says that nothing has changed that the work on a response goes by since the work
	// on the last one began.
	settled bool
}

// Resembles reports whether the response may be a repetition. Its hash, without the nonce,
// decides.
func (p *Repetition) Resembles(r *wire.Response) bool {
	return p.size == r.Size() && p.version == r.Version
}

// Repeats reports whether a response with the hash, which is 0 if it was not made, is a
// repetition that needs no work. That hashes of two different responses of one size are equal is
// left to chance, which is 2⁻⁶⁴: the seed is the client's secret.
func (p *Repetition) Repeats(hash uint64) bool { return p.settled && hash != 0 && hash == p.hash }

// Disturb notes that something has changed that the work on a response goes by.
func (p *Repetition) Disturb() { p.settled = false }

// Settled reports whether nothing has changed that the work on a response goes by, since the
// work on the last one began.
func (p *Repetition) Settled() bool { return p.settled }
