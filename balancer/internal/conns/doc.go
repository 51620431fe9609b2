// Package conns has the connections (gRPC's SubConns) of one balancer tree, and what is known of the endpoints
// that they lead to.
//
// A Pool opens the connections of the tree, and keeps those that policies shut down open for a moment. A Registry
// has the endpoints of one cluster, by address: their hostnames, whether outlier detection has ejected them, which
// locality their RPCs are reported for, and whether sessions may use them. A Conn is one use of a connection, by a
// policy or by sessions. It has a pointer to the Record of its address, so that an RPC reads what it needs with
// atomic loads, without a lock or a look-up.
//
// The package picks no endpoint, but the one that an RPC of a session asks for, and ejects nothing: packages cluster and
// outlier do. Policies open and close connections (package leaf); sessions keep some of these open (gRFC A75).
//
// Pools, Registries and Conns may be used from any goroutine. One lock, Pool.mu, guards all of them. Calls to gRPC and to
// policies are noted while the lock is held, and made by Pool.unlock.
package conns
