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
//   - Store holds the variants of each resource, or the errors in place of them, by type and
//     name, and for each name the subscriptions to it, by their constraints. An update
//     therefore costs what changed times who subscribed to it, whatever else the store
//     holds; and which variant a subscription gets is determined once for all that have
//     equal constraints.
//   - A stream reads requests: sotw and delta turn each into a change of a subscription's
//     selection, which makes topics due.
//   - A subscription holds what is selected, what is due, what the client was told, and what
//     was deleted but is kept for it. Due changes are names, not messages: a slow client
//     gets the newest state, and occupies a bounded amount of memory.
//   - The stream's sender turns what is due into responses, again by sotw or delta.
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
// [Tx.SetError] stores an error in place of a resource (xRFC TP3). It is
// sent once to each stream that subscribed to the name, until it changes, the resource is
// sent in between, or the client subscribes again. A delta client is sent either a
// resource_errors entry, if the store has an error, or a removed_resources entry, if it has
// nothing: a NOT_FOUND error and a removal mean the same to a client, and the error has the
// reason. Wildcard subscriptions have no errors; to them a resource in error does not exist.
//
// A glob collection (xRFC TP1, delta only) may be in error as a whole. As long as it is, the
// glob's subscribers are sent nothing about its members; afterwards all of them are sent
// again, as clients may have dropped them.
//
// # Names
//
// Names of xRFC TP1 (xdstp:) are compared in their canonical form: percent-decoded,
// with sorted context parameters. Delta responses, and errors, use the client's
// spelling of a name that it subscribed to. Aliases of resources, which TP1 gives up, are
// not supported.
package controlplane
