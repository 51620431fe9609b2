// Package interop tests and measures dynxds beside its peers: go-control-plane's
// xDS server as the control plane, and gRPC-Go's own xds package as the client
// next to it in one process.
//
// It holds tests and benchmarks only, in a module of its own, so that users
// of dynxds do not depend on the peers. See README.md for how to run them and
// how to read the benchmark.
package interop
