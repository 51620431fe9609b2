// Package xdsclient is the transport of xDS: it asks management servers for
// resources, keeps what they say, and tells watchers. It works for any type of
// resource; what a Listener is, only the ResourceType knows that a watcher
// brings along. It needs no gRPC channel above it.
//
// It is not for deciding anything about RPCs, and it does not follow references
// from one resource to the next: whoever reads a Listener watches its routes.
//
// The data comes from the ADS streams to the servers that a bootstrap names, and
// goes to the watchers as the immutable values that ResourceType.Decode made:
//
//	serverChannel  one server: a connection, one ADS stream at a time, the
//	   │           subscriptions of each type, backoff, timers; shared by all
//	   │           authorities that name the server
//	   ├─ protocol a variant of the wire protocol (sotw)
//	   │
//	authority      the cache of one authority: its resources by type and name,
//	   │           its ordered list of servers, and which of them is in use
//	   └─ resource one cache entry: the accepted version, the standing error
//	        └─ watch   one watcher, and what it is still to be told
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
// # Concurrency
//
// All state of a client is guarded by one mutex, XDSClient.mu. It is never held
// while a watcher is called, a resource is decoded, or anything is read or
// written, the log included, so there is no lock order to keep. A server channel has one goroutine
// that connects and reads, and one that writes while a stream is open; a client
// has one goroutine that calls the watchers, each after the other. Close ends
// them all.
//
// # Bounds
//
// What a watcher is still to be told is its latest state, not a history. A
// response is worked on in pieces, and of the resources in it only those that are
// watched are kept. The next response is not read before the watchers are done
// with the last one.
package xdsclient
