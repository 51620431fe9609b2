// Package xdsclient is an xDS client: it subscribes to resources at management servers,
// caches them, and notifies watchers. It works for any type of resource; only the
// ResourceType of a watch knows what a Listener is. It needs no gRPC channel above it.
//
// It is not for deciding anything about RPCs, and it does not follow references
// from one resource to the next: whoever reads a Listener watches its routes.
//
// The data comes from the ADS streams to the servers that a bootstrap names, and
// goes to the watchers as the immutable values that ResourceType.Decode made:
//
//	serverChannel  one server: one ADS stream at a time, the subscriptions of
//	   │           each type, backoff, timers; shared by all authorities that
//	   │           name the server
//	   ├─ protocol a variant of the wire protocol (delta, sotw)
//	   ├─ typeState what a type is subscribed to, and what the server has to
//	   │           be told of that: one state machine for every variant
//	authority      the cache of one authority: its resources by type, name and
//	   │           constraints, its ordered list of servers, and which is in use
//	   └─ resource one cache entry: the accepted version, the standing error
//	        └─ watch   one watcher, and what it is still to be told
//
// # Load reports
//
// For each server there is a load.Store, which decoders get and put into their
// values; whoever balances counts there. While one is in use, a loadReporter keeps an
// LRS stream to the server open, beside that of ADS and on the same connection. The
// connection lasts as long as either of them.
//
// # Looking in
//
// Dump tells what a client holds, and Clients which clients there are; package
// csds serves both. A channel that uses a client attaches its recorder of metrics
// to it (Attach).
//
// # What costs nothing
//
// A resource whose bytes are those of the accepted version is neither decoded
// nor copied, keeps its value, and wakes no watcher. It is found by a hash of its
// bytes, as a bare resource has no name outside of them.
//
// In the incremental variant (delta) the work for a response, and for a change of
// subscriptions, is proportional to that response or change, however much is
// subscribed to.
//
// A response that only repeats the one before it costs a comparison, and its answer
// waits, up to 3 s, so that a server that answers each NACK or ACK at once is slowed
// down. Nothing else waits: a change of the subscriptions takes the answer along, a
// different response is worked on and answered at once, and other types have answers
// of their own. A server that repeats itself without waiting for answers is read from
// at a bounded pace. See lastResponse, replyHold and readPace.
//
// # What a server can say of a resource
//
// It can send it, valid or not; say that it does not have it, by omitting it from
// the full state (SotW) or by naming it as removed (delta); send an error in its
// place (xRFC TP3), once, which is remembered; or keep silent. gRFC A88 says what
// becomes of the version in use: it stays, beside an ambient error, unless the
// error is one of the data and the server has the feature fail_on_data_errors.
//
// A resource that has not arrived after 15 s of connected time is taken not to exist.
// The exception is delta, once the server has answered for the type on the stream:
// such a server names resources that do not exist, so this one is only late
// (KindTimeout). The timer runs over delta too, as Envoy's description of the protocol
// advises, because some servers, go-control-plane's among them, name only resources
// that they had before, and a watcher must not wait for ever.
//
// # Collections
//
// A glob collection (xRFC TP1) is watched with WatchCollection. Its members have
// cache entries of their own, beside that of a resource that is also watched by
// its name. A member that leaves the collection is gone, whatever the features of
// the server: that is the content of the collection, and no error in the data.
// When another server takes over, the members that only the one before had leave
// with the first response in which the new one answers for the collection.
//
// # Variants
//
// A resource may have variants that share its name and differ in their dynamic
// parameters; a watch with constraints (WatchLocator) is of the variant that these
// choose (xRFC TP2). Cache entries, subscriptions, timers and errors are by name and
// constraints. Constraints go to servers with the feature dynamic_parameter_constraints,
// and then every request for every type has locators, and names beside them. Other
// servers are asked for names as ever; at one that is fallen back to, all watches of a
// name have what it has under the name.
//
// A resource is for each subscription to its name whose constraints its parameters
// satisfy. Of several in a response a subscription takes the preferred one, as
// dynparam.Constraints.Compare has it; a collection takes all. What matches nobody is
// dropped and counted.
//
// A response with changes does not say for which subscription a resource is there. If
// it is less than what one has, and may be there for another, the server is asked again
// for the one. What it sends after that counts. So subscriptions whose constraints
// overlap cost a request now and then; those that do not, none.
//
// # Concurrency
//
// All state of a client is guarded by one mutex, XDSClient.mu. It is never held
// while a watcher is called, a resource is decoded, or anything is read or
// written, the log included; the only lock taken under it is that of a load.Store.
// A server channel has one goroutine that connects and reads, and one that writes
// while a stream is open; a loadReporter has one that connects and writes, and one
// that reads; a client has one that calls the watchers, each after the other. Close
// ends them all, after the last load reports, for which it waits a second at most.
//
// # Bounds
//
// What a watcher is still to be told is its latest state, not a history. A
// response is worked on in pieces, and of what is in it only what is watched is
// kept. A collection has at most 1,048,576 members. A server that does not read
// the answers to its responses loses the stream before 4 MiB of them wait. The
// next response is not read before the watchers are done with the last one.
package xdsclient
