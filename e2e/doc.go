// Package e2e tests dynxds as a program uses it: gRPC channels over real connections,
// with a control plane (xdstest.Server) and backends in the same process. There is
// a file for each feature. It has no code of its own.
//
// Every test runs twice, over the state-of-the-world and the incremental variant of the
// protocol (TestMain). A test in which no RPC may fail runs over links with and without
// latency, too (overLinks).
package e2e
