// Package gocp runs go-control-plane's xDS server (pkg/server/v3 over its
// snapshot cache) as a fixture: the control plane that most gRPC deployments are built
// on, so that dynxds is not tested against our own alone.
//
// It is for the tests of this module. It is not a control plane to build on:
// it serves one node, and records what clients ask for without bound. What it
// serves comes from the test through Set; what clients asked for is read back
// with Requests and Wait.
package gocp
