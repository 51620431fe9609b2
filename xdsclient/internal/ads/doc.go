// Package ads is the ADS stream to one management server: which requests are sent on it and when, and the
// replies to responses. It does not know what a response means: each goes up to a
// Handler, which keeps the cache and the subscriptions.
//
//	Stream    connects, reads and writes, with backoff between attempts; calls the Handler
//	Link      whether the server can be reached, as a state machine
//	Requests  which requests for one type are due, and their contents
//	Progress  how far one subscription got: its State, in a table of events
//	Replies   the ACKs and NACKs of one type that are due
//	wire      the messages, of SotW and delta
//
// Only a Stream has goroutines. All else is plain state without a lock: its owner guards it.
package ads
