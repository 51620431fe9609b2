// Package serve runs the gRPC server of a control plane: the ADS service of a
// controlplane.Server beside health, reflection and channelz, with or without
// TLS, until it is told to drain.
//
// What the control plane serves comes from its caller, and so does the word
// that it is ready; the package knows neither folders nor policies.
package serve
