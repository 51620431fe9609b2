// Package e2e tests dynxds as a program uses it: gRPC channels over real connections,
// with a control plane (meshtest.Server) and backends in the same process. There is
// a file for each feature, and helpers in three: mesh_test.go (the control plane and its
// links), rpc_test.go (channels, RPCs and constant load) and tp2_test.go (variants and their
// constraints). It has no code of its own.
//
// Every test runs over the delta protocol (TestMain). Those that everyWay marks run over three other ways, too: the SotW
// protocol, and with a relay in between that speaks one to the control plane and the other to clients. With E2E_WAY=SotW,
// or -way SotW, all tests run over that way; a test to which it cannot
// matter skips and says why (directly, inOneWay). A test in which
// no RPC may fail runs over links with and without latency, too (overLinks).
package e2e
