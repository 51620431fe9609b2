// Package demo shows xDS at work in one process: a control plane (package
// controlplane), four gRPC backends on loopback, and a client that does what a
// user's program does. It imports dynxds for its side effect, finds the control
// plane through a bootstrap file, and dials "xds:///…". Five changes are made
// while RPCs run, and each has to show in the RPCs themselves.
//
// A mesh is what runs; traffic makes the RPCs; a step is one change and its expected effect;
// a tally judges the step by the RPCs.
//
// # Which configuration routed an RPC
//
// One answer does not show which of two splits routed the RPC. So every RouteConfiguration has a different
// max_stream_duration, of some hours. It reaches the backend as the RPC's deadline, and the
// backend answers with the number of the configuration that it stands for.
package demo
