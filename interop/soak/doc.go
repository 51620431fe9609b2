// Package soak keeps clients of dynxds under load for as long as it is told,
// while everything around them misbehaves: the control plane restarts, stalls,
// lies and sends garbage, errors and changes, and backends come and go.
//
// What has to hold:
//
//   - no RPC fails that had a healthy endpoint by the last good configuration;
//   - an RPC goes by a configuration that was published and is not known to
//     have been replaced, and to an endpoint that this configuration has;
//   - once an RPC went by a configuration, none that begins later on the same
//     channel goes by an older one;
//   - after each round, when the control plane says the truth again, every
//     client holds what the model says, byte for byte;
//   - memory and goroutines level off.
//
// It is a test, and not a tool to load other systems with: client, control plane
// and backends are in one process, on loopback. Its parts:
//
//	model.go    a configuration of the mesh, changes to it, its resources
//	history.go  which configurations an RPC may have gone by
//	traffic.go  the RPCs, and the judgement of each
//	mesh.go     the control plane, backends and channels that a run is made of
//	ops.go      what is done to them, and when that can be done without
//	            taking the last healthy endpoint from an RPC
//	lies.go     what a control plane that lies makes of its responses
//	run.go      rounds of operations, the settling after each, the report
//
// The operations of a run are drawn from a seed by one goroutine, and depend on
// nothing but the seed and the draws before; when they meet the RPCs depends on
// the machine. A failed run prints its seed.
package soak
