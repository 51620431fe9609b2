// Package demo shows xDS at work in one process: a control plane
// (package controlplane), four gRPC backends on loopback, and a client that
// does what a user's program does: it imports dynxds for its side effect, finds
// the control plane through a bootstrap file, and dials "xds:///…". Five
// changes are made while RPCs run, and each has to be seen in the RPCs
// themselves.
//
// The package sets the stage (mesh), writes the resources (routes), makes the
// RPCs (traffic) and lists the steps. Package scenario runs and judges them,
// package report prints.
//
// # Which configuration routed an RPC
//
// Two splits cannot be told apart by one answer. So every RouteConfiguration
// that is pushed has a max_stream_duration of its own, a matter of hours. It
// reaches the backend as the RPC's deadline, and the backend answers with the
// number of the configuration that it stands for.
package demo
