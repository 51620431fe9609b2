// Package xdsclient is an xDS client: it subscribes to resources at management servers,
// caches them, and notifies watchers. It works for any type of resource; only the
// ResourceType of a watch knows what a Listener is. It needs no gRPC channel above it.
//
// It decides nothing about RPCs, and does not follow references from one resource to the
// next: the program that reads a Listener watches its routes.
//
// # The way of a response
//
// The data comes from the ADS streams to the servers that a bootstrap names, and goes to the
// watchers as the immutable values that ResourceType.Decode made:
//
//	internal/ads/wire  the messages: SotW and delta behind one interface
//	internal/ads       whether the server can be reached (Link), and the states of a subscription
//	   ▼
//	managementServer      one server: its stream, its subscriptions by type (typeState) with its last answers,
//	   │               and its resource timers; shared by all authorities that name the server
//	update             the work on one response
//	   ▼
//	authority          one xDS authority: its servers, which of them it follows, and the cache by type, name
//	   │               and constraints; for one target if there are several servers
//	   └─ resource     one cache entry: the accepted version, the standing error
//	        └─ watch     one watcher, and its queued events
//
// Requests go the other way: a watch changes the subscriptions, which are compared with the last request
// (requests.go; crossing.go has what follows if requests and responses cross).
//
// For each server there is a load.Store, which decoders put into their values; the
// balancer counts there. While one is in use, internal/lrs keeps an LRS stream to the server
// open, beside that of ADS and on the same connection, which lasts as long as either of them.
//
// # Concurrency
//
// One mutex, XDSClient.mu, guards all state of a client, also that of the types of internal/ads,
// which have no locks. It is never held while a watcher is called, a resource is decoded, or
// anything is read or written, the log included: unlock writes the lines that were logged under it. The only
// locks taken under it are the locks of the load stores. Metrics (attachments) have locks of their own, which are
// not taken under it. A stream (stream.go) reads and writes without any lock.
//
// A stream has one goroutine that connects and reads, and one that writes while it is open; the load reports to a server
// have one that waits for load, connects and writes, and one that reads; a client has one that calls the watchers, one after the other. Close
// ends them all, after the last load reports, for which it waits a second at most.
//
// # What costs nothing
//
// A resource with the same bytes as the accepted version is neither decoded nor copied, keeps
// its value, and wakes no watcher. It is found by its name, which a resource without a wrapper has in field 1 of its
// bytes (ResourceType.NameOf).
//
// In delta the work for a response, and for a change of subscriptions, is proportional to that
// response or change, however much is subscribed to.
//
// A response that only repeats the last one costs a hash, and from the second repetition on its reply waits, up to 1 s,
// so that a server that answers each NACK or ACK at once is slowed down; see repeats.go.
//
// # What a server can cost
//
// The work on the responses of a server takes at most a quarter of the time, after a burst of 10 s (bounds.ResponseShare).
// Then the client rests, with a response that it does not read, and flow control holds the server back. Resource timers do not
// run meanwhile. Every response is read in the end: none is passed over for a later one, not even in SotW, where one with the
// full state makes earlier responses obsolete. The resources in an obsolete response say which requests the server had read
// (crossing.go), and a server that sent a resource does not send it again.
//
// # What a server can answer for a resource
//
// It can send the resource, valid or not; report that it does not have it, by omitting it from the
// full state (SotW) or by naming it as removed (delta); send an error in its place (xRFC TP3), once,
// which is remembered; or not answer. gRFC A88 specifies what becomes of the version in use: it
// stays, beside an ambient error, unless the error is one of the data and the server has the
// feature fail_on_data_errors.
//
// A resource that has not arrived after 15 s of connected time does not exist only if the server's
// answers say so: in SotW a full state without it, or others of a type that has no full state
// (subscription.saysAbsent). Otherwise the server is silent, and the resource late (KindTimeout). The timer runs over delta too, as
// Envoy's description of the protocol advises, because some servers, go-control-plane's among them,
// name only resources that they had before. A server with the feature resource_timer_is_transient_error
// is said to name what it lacks, so that its silence says nothing (Error.Transient).
//
// # Collections
//
// A glob collection (xRFC TP1), or the wildcard "*", is watched with WatchCollection. Its members have cache entries of
// their own, beside that of a resource that is also watched by its name. A member that leaves the
// collection is removed, whatever the features of the server: that is the content of the
// collection, and no error in the data. When an authority moves to another server, the members that
// only the old one had leave with the first response in which the new one answers for the
// collection.
//
// # Variants
//
// A resource may have variants that share its name and differ in their dynamic parameters; a
// watch with constraints (WatchLocator) is of the variant that these choose (xRFC TP2). Cache
// entries, subscriptions, timers and errors are by name and constraints. Constraints go to
// servers with the feature dynamic_parameter_constraints, and then every request for every type
// has locators, and names beside them. Other servers are asked for names; if an authority falls back to
// one of them, all its watches of a name get the same resource.
//
// A resource is for each subscription to its name whose constraints its parameters satisfy. Of
// several in a response a subscription takes the preferred one, as dynparam.Constraints.Choose
// has it; a collection takes all. A resource that matches no subscription is dropped and counted.
//
// A response with changes does not name the subscription that a resource is for. If the resource is
// less preferred than the variant that one subscription has, and may be for another subscription, the server is asked again for
// the first one, and its answer counts. So subscriptions with overlapping constraints cost a request now and
// then, and others cost none.
//
// # On disk
//
// With resource_cache in the bootstrap, a diskWriter writes the resources in use to a file
// (internal/diskcache), on a goroutine of its own. The resources in the file stand in for resources that no
// server has answered for: once all servers of an authority are unreachable, or silent for as long as
// a resource timer runs. The first response of any of these servers ends that. An entry from disk is
// in the state REQUESTED, and counts as missing where fallback between servers is decided.
//
// # Bounds
//
// A watcher's queue has the latest state, not a history. A response is worked on
// one resource at a time, and only watched resources are kept. A collection has at most
// 1,048,576 members. A server that does not read the replies to its responses loses the stream
// before 4 MiB of them wait. The next response is not read before the watchers are done with the
// last one.
package xdsclient
