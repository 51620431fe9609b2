package grpcbridge

import (
	"context"

	"google.golang.org/grpc"
)

// Known reports whether there is a Channel for cc.
func Known(cc *grpc.ClientConn) bool { return lookup(cc) != nil }

// WithoutRegistry calls f as if gRPC had no registry of metrics.
func WithoutRegistry(f func()) {
	names := registeredMetrics
	defer func() { registeredMetrics = names }()
	registeredMetrics = nil
	f()
}

// LabelFunctions returns UpdateLabels and WithoutLabelCallbacks for a gRPC that registers
// callbacks by register.
func LabelFunctions[C ~func(map[string]string)](register func(context.Context, C) context.Context) (
	update func(context.Context, ...map[string]string) bool, remove func(context.Context) context.Context,
) {
	c := findLabelCallbacks(register)
	return c.update, c.remove
}

// SubchannelLabelsBefore is subchannelLabelsBefore.
var SubchannelLabelsBefore = subchannelLabelsBefore

// InstalledSubchannelLabels returns what gRPC asks for the labels of subchannels.
func InstalledSubchannelLabels() any { return addressToTelemetryLabels }
