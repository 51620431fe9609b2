// Package serve runs the gRPC server of a control plane: a controlplane.Server with health, reflection and
// channelz, with or without TLS, until it drains.
//
// The caller fills the control plane and decides when it is ready; the package does not deal with folders
// and policies.
package serve
