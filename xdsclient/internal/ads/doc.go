// Package ads is one ADS stream to a management server: what is sent on it and when, and how
// its server answers. It says nothing about what a response means: what is received goes up
// to a Handler, which keeps the cache.
//
//	Stream     connects, reads and writes, with backoff between attempts; calls the Handler
//	Link       whether the server can be reached, as a state machine
//	Replies    the ACKs and NACKs of one type that are due
//	wire       the messages, of SotW and delta
//
// Only a Stream has goroutines. All else is plain state without a lock: its owner guards it.
package ads
