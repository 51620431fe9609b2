// Package controlplane is an xDS management server: an in-memory, versioned
// store of resources and their variants, and an ADS server that keeps every
// client's stream in step with it.
//
// Resources come in as protobuf messages through [Store.Update] and go out as
// DiscoveryResponses (SotW) or DeltaDiscoveryResponses (delta) to the streams
// that subscribed to them. Where the messages come from (a folder, an operator,
// a test) is the caller's business: the store neither validates them nor knows
// what they mean. Any type of resource works.
//
// The package is not a client and imports none. It does not listen: the caller
// registers a [Server] with a grpc.Server, whose credentials, message sizes and
// keepalive decide who may connect.
//
// # Layers
//
//   - Store holds the variants of each resource, or the errors in place of them,
//     by type and name, and for each name the subscriptions that asked for it,
//     by their constraints. An update therefore costs what changed times who
//     asked for it, whatever else the store holds; and which variant a
//     subscription gets is found once for all that have equal constraints.
//   - stream and subscription are one client's interest and the changes that it
//     has not been told yet. Changes are kept as names, not as messages: a slow
//     client finds the newest state, and owes a bounded amount of memory.
//   - A protocol variant (sotw, delta) turns requests into subscription changes
//     and pending changes into responses.
//
// # Variants
//
// Variants of a resource have one name and different dynamic parameters (xRFC
// TP2, the text of 2021-08): [Tx.SetVariant]. A client that subscribes by
// locators says with constraints which one it wants; the package understands the
// messages of that text, in proto/dynxds/discovery/v3, and no later ones. Any
// other client has no constraints, which match all variants, or those of
// [Options.NodeConstraints], and is sent one variant of each name: the choice that
// dynparam.Constraints.Choose makes. [Tx.SetDPDS] tells each client which
// constraints to send.
//
// # Order
//
// What one update changed reaches a stream make before break (Envoy, xDS
// protocol, "Eventual consistency considerations"): DPDS resources, Clusters, then
// ClusterLoadAssignments, Listeners, RouteConfigurations, then every other type;
// Clusters and assignments that the update ended, by deleting them or by an
// error, disappear last of all.
//
// The order of responses does not say when a client has acted on them. So a resource
// that is deleted from the store stays in the view of each stream whose client has it,
// until the client unsubscribes or a delay has passed ([Options.RemovalDelay], 30 s by
// default). Errors are not delayed, nor are deletions of Listeners.
//
// # Errors
//
// [Tx.SetError] stores an error where a resource cannot be had (xRFC TP3). It is
// sent once to each stream that subscribed to the name, until it changes, the
// resource comes in between, or the client subscribes anew. In delta a name is
// told of either by resource_errors, if the store has an error, or by
// removed_resources, if it has nothing: a NOT_FOUND error and a removal mean the
// same to a client, and the error has the reason. Wildcard subscriptions have no
// errors; to them a resource in error is one that does not exist.
//
// A glob collection (xRFC TP1, delta only) may be in error as a whole. As long
// as it is, nothing is told of its members for the glob's sake; afterwards all
// of them are sent again, as clients may have dropped them.
//
// # Names
//
// Names of xRFC TP1 (xdstp:) are compared in their canonical form: percent-decoded,
// with sorted context parameters. Delta responses, and errors, use the client's
// spelling of a name that it asked for. Aliases of resources, which TP1 gives up, are
// not offered.
package controlplane
