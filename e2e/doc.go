// Package e2e tests dynxds as a program uses it: gRPC channels over real connections,
// with a control plane (testutils.FakeServer) and backends in the same process. There is
// a file for each feature. The package has tests only.
//
// Every test runs twice, over SotW and over delta (TestMain). A test in which no RPC may
// fail also runs over links with and without latency (overLinks).
package e2e
