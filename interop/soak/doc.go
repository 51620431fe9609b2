// Package soak keeps clients of dynxds under load for as long as it is told,
// while everything around them misbehaves: the control plane restarts, stalls,
// lies and sends garbage, errors and changes, its messages and those to it take time,
// more or less from round to round, DPDS moves clients from variant to variant, and
// backends come and go.
//
// What has to hold:
//
//   - no RPC fails that had a healthy endpoint by the last good configuration;
//   - an RPC goes by a configuration that was published and is not known to
//     have been replaced, and to an endpoint that this configuration has;
//   - once an RPC went by the routes of a configuration, none that begins later on
//     the same channel goes by an older version of the resource that these are
//     in, if it comes from one server;
//   - after each round, when the control plane says the truth again, every
//     client asks with the constraints, and holds what the model says, byte for
//     byte;
//   - memory and goroutines level off.
//
// It is a test, and not a tool to load other systems with: client, control plane
// and backends are in one process, on loopback.
//
// Some clients use old-style names. The others use names of an authority with
// DPDS (xRFC TP2, "Server-Specified Constraints"): Listeners, RouteConfigurations
// and ClusterLoadAssignments have a variant in each lane, with routes and
// endpoints of its own, and DPDS tells each client, for each of the types, the
// lane to ask for, or none. Some have DPDS from the server of everything else; it
// may say what it wants, they keep what it said last (gRFC A88). Others have it
// from a server of its own with fail_on_data_errors; when they are denied it, or
// told nonsense, they have no constraints. In rounds without lies every move is to
// be smooth. In those with lies nobody moves: who moves asks again, and a lie about
// that takes away what there was.
//
// The parts:
//
//	model.go      a configuration of the mesh, and how one is drawn
//	lanes.go      what of it is in lanes, and what DPDS makes of that
//	resources.go  its resources
//	clients.go    the clients, and what is different between them
//	history.go    which configurations an RPC may have gone by
//	traffic.go    the RPCs, and the judgement of each
//	mesh.go       the control plane, backends and channels that a run is made of
//	publisher.go  the changes of configuration
//	disruptor.go  the disruptions, none of which takes the last healthy endpoint
//	              from an RPC
//	ops.go        the operations that are drawn from, which do the one or the other
//	dpds.go       the operations on DPDS
//	lies.go       what a control plane that lies makes of its responses
//	run.go        rounds of operations, the settling after each
//	report.go     memory and goroutines, and what a run did
//
// The operations of a run are drawn from a seed by one goroutine, and depend on
// nothing but the seed and the draws before; when they meet the RPCs depends on
// the machine. A failed run prints its seed.
package soak
