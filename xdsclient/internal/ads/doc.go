// Package ads has the parts of an ADS stream to a management server that know neither its resources nor its subscriptions:
//
//	Link     whether the server can be reached, as a state machine
//	State    how far a subscription got with the server, in a table of events
//	Replies  the ACKs and NACKs of one type that are due
//	wire     the messages, of SotW and delta
//
// All is plain state without a lock: its owner guards it.
package ads
