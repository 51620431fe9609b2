// Package dynamicparametersv3 is how a control plane tells a client which dynamic
// parameter constraints to subscribe with (xRFC TP2 of 2021-08, "Server-Specified
// Constraints"): the resource, and DPDS, the discovery service for it.
//
// The names are our own; neither they nor the name of the service appear on the
// wire. There the resource is
// type.googleapis.com/envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap,
// the package that the text gives it. As the message is not registered under that
// name, it is put into a google.protobuf.Any, and taken out, by
// xdsclient/dynparam. The package has no logic.
package dynamicparametersv3
