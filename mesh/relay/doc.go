// Package relay is a caching xDS proxy: clients subscribe to it as they would to the control plane, and
// it subscribes there once for all clients with equal subscriptions. Resources are keyed by type, name and
// dynamic parameter constraints, as xRFC TP2 made them cacheable. A pod whose processes speak several
// languages has one stream to its control plane, and a control plane has one for many pods.
//
// A relay passes resources on as they are, with the bytes, versions, parameters, aliases and TTLs of the
// control plane, so a client may move to another relay, or to the control plane itself, and is not
// sent again a resource that it has. It is not a control plane: it makes no resource of its own, and has no
// services or routes.
//
// Data comes from the management servers of a bootstrap, by package xdsclient, and goes to clients by
// package controlplane, over a grpc.Server that the caller has:
//
//	clients ── controlplane.Server ── group ── xdsclient.XDSClient ── management servers
//	                                    │
//	                       one for the clients that are one node upstream
//
// # Whose node
//
// A control plane may answer by the node of a client. The relay therefore keeps clients apart whose
// nodes differ in more than their id, unless [Options.OneGroup] is set: each group of clients
// has a cache, and a node, of its own. What a client can understand, its user agent and client features, keeps clients apart as well,
// as a control plane must not send one what another does not understand. A control plane that distinguishes the clients of a group
// must do so by dynamic parameters (xRFC TP2) or by resources that must not be cached.
//
// # What is not shared
//
// A resource that must not be cached (Resource.cache_control.do_not_cache, and that of DPDS: xRFC
// TP2, "Non-Cacheability of DPDS") is asked for under the client's own node, on a stream of its own
// that ends with the client's. Errors are shared, PERMISSION_DENIED too: a group is one identity
// upstream, and if the control plane denies it a resource, it denies it to all clients of the group.
//
// # Rejections
//
// A relay decodes no resource, and rejects none but bytes that are no message. The NACKs of its clients are
// reported to OnNACK of [Options].Server, and not sent to the control plane: a
// resource that one client cannot use may be fine for others.
//
// # When the control plane is away
//
// Clients get the resources of the relay, with unchanged versions, new clients too. For a resource that
// it does not have, a client gets the error UNAVAILABLE (xRFC TP3), and keeps using the one it has. Beside each RouteConfiguration that
// it does have, a client gets that error, too: it uses what it is served, and knows that it may be old (gRFC A88, "ambient errors").
package relay
