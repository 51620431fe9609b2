package grpcbridge

import (
	"context"
	"maps"

	"google.golang.org/grpc/experimental/stats/telemetry"
)

// UpdateLabels gives labels to the callbacks for telemetry labels in the context of an RPC
// (telemetry.NewContextWithLabelCallback), such as that of gRPC's OpenTelemetry plugin, in the
// order of their registration. It reports whether there are any. It does not keep or change
// labels. Without callbacks it allocates nothing.
//
// gRPC lets only its own packages call the callbacks. If a future gRPC keeps them elsewhere,
// UpdateLabels does nothing.
func UpdateLabels(ctx context.Context, labels map[string]string) bool {
	return updateLabels(ctx, labels)
}

var updateLabels = labelUpdater(telemetry.NewContextWithLabelCallback)

// labelUpdater returns UpdateLabels for the callbacks that register puts into a context. It
// finds their key by registering one: register looks for those that are there. The callbacks
// have an internal type, C.
func labelUpdater[C ~func(map[string]string)](register func(context.Context, C) context.Context) func(context.Context, map[string]string) bool {
	asked := &askedKeys{Context: context.Background()}
	ctx := register(asked, func(map[string]string) {})
	for _, key := range asked.keys {
		if callbacks, ok := ctx.Value(key).([]C); ok && len(callbacks) == 1 {
			return func(ctx context.Context, labels map[string]string) bool {
				callbacks, _ := ctx.Value(key).([]C)
				if len(callbacks) == 0 {
					return false
				}
				labels = maps.Clone(labels) // Callbacks may keep and change theirs.
				for _, callback := range callbacks {
					callback(labels)
				}
				return true
			}
		}
	}
	logger.Warningf("gRPC keeps the callbacks for telemetry labels where dynxds does not find them: " +
		"metrics of RPCs have no grpc.lb.locality, grpc.lb.backend_service and csm labels.")
	return func(context.Context, map[string]string) bool { return false }
}

// askedKeys is a context that records which keys it is asked for.
type askedKeys struct {
	context.Context
	keys []any
}

// Value implements context.Context.
func (a *askedKeys) Value(key any) any {
	a.keys = append(a.keys, key)
	return nil
}
