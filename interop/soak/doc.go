// Package soak simulates a mesh: clients of dynxds under load, while everything around them misbehaves. The
// control plane restarts, stalls, lies, sends garbage, errors and changes, latencies change, connections are cut,
// reset and lost, DPDS moves clients from variant to variant, and backends and relays stop and restart. Time is
// virtual, so that hours take seconds, and connections are in memory.
//
// These invariants have to hold:
//
//   - no RPC fails that had a healthy endpoint by the last good configuration;
//   - an RPC follows a configuration that was published and that some client may
//     still have, and reaches an endpoint of this configuration;
//   - it is secured as its cluster is in such a configuration, and no certificate that expires, is renewed or is signed
//     by another authority fails it;
//   - once an RPC followed the routes of a configuration, none that begins later on
//     the same channel follows an older version of the resource with these routes,
//     if one server sends it;
//   - after each round, when the control plane is correct again, every client
//     subscribes with the constraints, and holds the resources, that the model says,
//     byte for byte;
//   - no goroutine is left when all is closed.
//
// It is a test, and not a tool to load other systems with: client, control plane
// and backends are in one process.
//
// Some clients use old-style names. The others use names of an authority with
// DPDS (xRFC TP2, "Server-Specified Constraints"): Listeners, RouteConfigurations
// and ClusterLoadAssignments have a variant in each lane, with routes and
// endpoints of its own, and DPDS gives each client, for each of the types, the lane
// to subscribe to, or none. Some get DPDS from the server of all other resources, and
// keep its last valid constraints whatever it sends (gRFC A88). Others get it from a
// server of its own with fail_on_data_errors; when that sends an error or invalid
// constraints, they have none. In rounds without lies every move must be smooth. In
// rounds with lies no client moves: one that moves subscribes again, and a lie in the
// response withdraws what it had.
//
// Some clients, two of them with DPDS, have a relay in front of the first control plane,
// which speaks the other variant of the protocol to it. A relay that was killed starts
// again without what it had, also while the control plane is away or lies.
//
// The parts:
//
//	model.go      a configuration of the mesh, and how one is drawn
//	lanes.go      the lanes of it, and how DPDS chooses among them
//	resources.go  its resources
//	clients.go    the clients, and how they differ
//	history.go    which configurations an RPC may have followed
//	traffic.go    the RPCs, and the checks of each
//	mesh.go       the control plane, backends and channels that a run is made of
//	relays.go     the relays
//	policies.go   its routes, as MeshHTTPRoute policies make them
//	certificates.go the certificates of clients and servers, and their rotation
//	publisher.go  the changes of configuration
//	disruptor.go  the disruptions, none of which takes the last healthy endpoint
//	              from an RPC
//	ops.go        the operations that are drawn from, which do the one or the other
//	dpds.go       the operations on DPDS
//	lies.go       the distortions of a control plane's responses
//	pacing.go     when the next RPC is due
//	network.go    the network in memory
//	networkops.go the operations on it
//	plan.go       what happens in a simulation, by its seed
//	simulate.go   a simulation
//	run.go        the rounds of operations, the settling after each
//	shrink.go     how a plan that fails is shrunk
//
// The operations depend only on the seed ("make sim SEEDS=1 FIRST=7" repeats one); their timing against the RPCs depends
// on the schedule of goroutines. What needs real sockets or many processors is tested by e2e (TestChurnFailsNoRPC).
package soak
