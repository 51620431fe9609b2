// Package e2e tests dynxds as a program uses it: gRPC channels over real connections,
// with a control plane (meshtest.Server) and backends in the same process. There is
// a file for each feature, and helpers in three: mesh_test.go (the control plane and its
// links), rpc_test.go (channels, RPCs and constant load) and tp2_test.go (variants and their
// constraints). It has no code of its own.
//
// Every test runs four times (TestMain): over the SotW and the delta protocol, and with a relay in
// between that speaks one to the control plane and the other to clients; a test to which that cannot
// matter skips the others and says why (directly, inOneWay). A test in which
// no RPC may fail runs over links with and without latency, too (overLinks).
package e2e
