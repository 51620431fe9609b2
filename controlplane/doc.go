// Package controlplane is an xDS management server: an in-memory, versioned
// store of resources, and an ADS server that keeps every client's stream in
// step with it.
//
// Resources come in as protobuf messages through [Store.Update] and go out as
// DiscoveryResponses to the streams that subscribed to them. Where the messages
// come from (a folder, an operator, a test) is the caller's business: the store
// neither validates them nor knows what they mean. Any type of resource works.
//
// The package is not a client and imports none. It does not listen: the caller
// registers a [Server] with a grpc.Server, whose credentials, message sizes and
// keepalive decide who may connect.
//
// # Layers
//
//   - Store holds the resources by type and name, and for each resource the
//     subscriptions that asked for it. An update therefore costs what changed
//     times who asked for it, whatever else the store holds.
//   - stream and subscription are one client's interest and the changes that it
//     has not been told yet. Changes are kept as names, not as messages: a slow
//     client finds the newest state, and owes a bounded amount of memory.
//   - A protocol variant (sotw) turns requests into subscription changes and
//     pending changes into responses.
//
// # Order
//
// What one update changed reaches a stream make before break (Envoy, xDS
// protocol, "Eventual consistency considerations"): Clusters, then
// ClusterLoadAssignments, Listeners, RouteConfigurations, then every other type;
// Clusters that the update deleted disappear last of all.
package controlplane
