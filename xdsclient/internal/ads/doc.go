// Package ads decides what a client says on the ADS stream to one management server: which requests are sent and when, and
// the replies to responses. It does not know what a response means, and neither reads nor writes: its owner keeps the cache
// and the subscriptions, and has the stream.
//
//	Link      whether the server can be reached, as a state machine
//	Requests  which requests for one type are due, and their contents
//	Progress  how far one subscription got: its State, in a table of events
//	Replies   the ACKs and NACKs of one type that are due
//	wire      the messages, of SotW and delta
//
// All is plain state without a lock: its owner guards it.
package ads
