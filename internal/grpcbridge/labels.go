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
	return inContext.update(ctx, labels)
}

// TakesLabels reports whether UpdateLabels would give labels to anybody. It allocates nothing.
func TakesLabels(ctx context.Context) bool { return inContext.any(ctx) }

// WithoutLabelCallbacks returns ctx without callbacks for telemetry labels, for an RPC that the
// application did not make.
func WithoutLabelCallbacks(ctx context.Context) context.Context { return inContext.remove(ctx) }

var inContext = findLabelCallbacks(telemetry.NewContextWithLabelCallback)

// labelCallbacks has UpdateLabels, TakesLabels and WithoutLabelCallbacks.
type labelCallbacks struct {
	any    func(context.Context) bool
	update func(context.Context, map[string]string) bool
	remove func(context.Context) context.Context
}

// findLabelCallbacks returns the labelCallbacks for what register puts into a context. It finds
// the key by registering a callback: register looks for those that are there. The callbacks
// have an internal type, C.
func findLabelCallbacks[C ~func(map[string]string)](register func(context.Context, C) context.Context) labelCallbacks {
	asked := &askedKeys{Context: context.Background()}
	ctx := register(asked, func(map[string]string) {})
	for _, key := range asked.keys {
		if callbacks, ok := ctx.Value(key).([]C); ok && len(callbacks) == 1 {
			return labelCallbacksAt[C](key)
		}
	}
	logger.Warningf("gRPC keeps the callbacks for telemetry labels where dynxds does not find them: " +
		"metrics of RPCs have no grpc.lb.locality, grpc.lb.backend_service and csm labels.")
	return labelCallbacks{
		any:    func(context.Context) bool { return false },
		update: func(context.Context, map[string]string) bool { return false },
		remove: func(ctx context.Context) context.Context { return ctx },
	}
}

// labelCallbacksAt returns the labelCallbacks for callbacks under a key.
func labelCallbacksAt[C ~func(map[string]string)](key any) labelCallbacks {
	return labelCallbacks{
		any: func(ctx context.Context) bool {
			callbacks, _ := ctx.Value(key).([]C)
			return len(callbacks) > 0
		},
		update: func(ctx context.Context, labels map[string]string) bool {
			callbacks, _ := ctx.Value(key).([]C)
			if len(callbacks) == 0 {
				return false
			}
			labels = maps.Clone(labels) // Callbacks may keep and change theirs.
			for _, callback := range callbacks {
				callback(labels)
			}
			return true
		},
		remove: func(ctx context.Context) context.Context {
			if callbacks, _ := ctx.Value(key).([]C); len(callbacks) == 0 {
				return ctx
			}
			return context.WithValue(ctx, key, []C(nil))
		},
	}
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
