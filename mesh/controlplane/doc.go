// Package controlplane is an xDS management server: an in-memory, versioned store of resources and
// their variants, and an ADS server that sends every client what it subscribes to.
//
// Resources are added as protobuf messages by [Store.Update] and sent as DiscoveryResponses (SotW) or
// DeltaDiscoveryResponses (delta) to the streams that subscribed to them. The store neither validates
// nor interprets them; any type of resource works.
//
// The package is not a client and imports none. It does not listen: the caller registers a [Server]
// with a grpc.Server, and configures credentials, message sizes and keepalive there.
//
// # Layers
//
//   - Store holds the variants of each resource, or the errors in place of them, by type and name,
//     and the subscriptions to each name, by their constraints. The cost of an update is therefore
//     that of the changes and their subscribers, whatever else the store holds; and the choice of a
//     variant is made once for all subscriptions with equal constraints. These share an ask, which
//     holds the choice, or what a source answered.
//   - A stream reads requests: sotw and delta turn each into a change of a subscription's selection,
//     which makes topics due.
//   - A subscription holds what is selected and, of each topic of which the client does not simply have
//     what the store has, what the client has, what is due, and a deleted resource that is
//     retained. Due changes are names, not messages: a slow client gets the newest state, and its memory is bounded.
//   - The stream's sender composes batches from what is due, over SotW and delta alike; sotw and delta
//     turn these into responses.
//
// # Variants
//
// Variants of a resource have one name and different dynamic parameters (xRFC TP2, the text of
// 2021-08): [Tx.SetVariant]. A client that subscribes by locators chooses among them by constraints;
// the package knows the messages of that text, in proto/dynxds/discovery/v3, and no later ones. Any
// other client has no constraints, which match all variants, or those of [Options.NodeConstraints],
// and is sent one variant of each name, by dynparam.Constraints.Choose. [Tx.SetDPDS] gives each
// client the constraints to send: the sender of each stream calls the function when the resource is due.
// The first request for a type on a stream decides whether the client goes by locators: if it does not,
// locators in a later one end the stream with INVALID_ARGUMENT, as they would never be answered.
//
// # Resources on demand
//
// A program need not know all resources beforehand. [Store.OnDemand] notifies it of the first and the last
// subscriber of each name and constraints ([Demand]), and lets it answer whenever it can ([Tx.Answer]): so a proxy
// subscribes to what its clients subscribe to, and the package mesh/examples/sharding computes shards of
// endpoints. What has no subscriber is not kept.
//
// Clients with equal constraints, and one spelling of a name, share a demand, and its answer. A resource with
// cache_control.do_not_cache is never shared ([NewResource]), nor is one of DPDS (TP2,
// "Non-Cacheability of DPDS"): each client has a demand of its own, with its node. Where resources
// depend on the node in other ways, [Options.StoreFor] serves different nodes from different stores.
//
// [NewResource] takes a resource as it was received: bytes, version, dynamic parameters, aliases, TTL
// and cache control are sent on unchanged. A delta client that moves between servers with
// the same versions is sent nothing (initial_resource_versions).
//
// # Limits
//
// Clients are bounded by [Options]: MaxStreams and MaxSubscriptions. A client that does
// not read costs no more than one that does: what is due to it are names, and the newest state of each.
// A NACK is not answered; a nonce that is unknown or outdated has no effect. A stream costs about
// 10 bytes for each subscription, beside what is shared by all subscribers of the same name, and 30 kB,
// most of it the stacks of gRPC's goroutines.
//
// # Order
//
// The changes of one update are sent make before break (Envoy, xDS protocol, "Eventual consistency
// considerations"): DPDS resources, Clusters, ClusterLoadAssignments, Listeners,
// RouteConfigurations, other types; and last the removals and errors of Clusters and assignments.
//
// The order of responses does not ensure that a client has acted on them. So a deleted resource is
// kept for each client that has it, until the client unsubscribes or a delay has passed
// ([Options.RemovalDelay], 30 s by default). Errors and deletions of Listeners are not delayed.
//
// Envoy warms a Cluster that has changed until it is sent the ClusterLoadAssignment again, also one that has not changed (Envoy, xDS protocol,
// "Resource warming"). The server does not do that by itself, and a SotW request with the same names has no answer: set the assignment with
// another version ([NewResource]) in the same update.
//
// # Errors
//
// [Tx.SetError] stores an error in place of a resource (xRFC TP3). It is sent once to each stream that
// subscribed to the name, and again after it changed, the resource was sent in between, or the client
// subscribed again. A delta client is sent a resource_errors entry if the store has an error, a
// removed_resources entry if it has nothing, and beside that an error with the text of [Options.Absence]. To wildcard subscriptions a resource in error does not
// exist.
//
// A glob collection (xRFC TP1, delta only) may be in error as a whole. Its subscribers are sent
// nothing about its members until the error ends; then all members are sent again, as clients may
// have dropped them.
//
// # Names
//
// Names of xRFC TP1 (xdstp:) are compared in canonical form: percent-decoded, with sorted context
// parameters. For the limits of a peer another spelling is another name. Delta responses and errors use the client's spelling. The aliases of a resource are sent
// with it; a client cannot subscribe by an alias. Wildcards do not cover them: globs do.
package controlplane
