package grpcbridge

import (
	"context"
	"maps"

	"google.golang.org/grpc/experimental/stats/telemetry"
)

// UpdateLabels gives all labels together to the callbacks for telemetry labels in the context of an RPC
// (telemetry.NewContextWithLabelCallback), such as that of gRPC's OpenTelemetry plugin, in the
// order of their registration. It reports whether there are any. Later labels replace earlier ones. UpdateLabels does not keep or change
// labels. A caller that must not allocate without callbacks asks TakesLabels first.
//
// gRPC lets only its own packages call the callbacks. If a future gRPC keeps them elsewhere,
// UpdateLabels does nothing.
func UpdateLabels(ctx context.Context, labels ...map[string]string) bool {
	return inContext.update(ctx, labels...)
}

// TakesLabels reports whether there are callbacks for UpdateLabels. It allocates nothing.
func TakesLabels(ctx context.Context) bool { return len(inContext.in(ctx)) > 0 }

// WithoutLabelCallbacks returns ctx without callbacks for telemetry labels, for an RPC that the
// application did not make.
func WithoutLabelCallbacks(ctx context.Context) context.Context { return inContext.remove(ctx) }

var inContext = findLabelCallbacks(telemetry.NewContextWithLabelCallback)

// labelCallbacks finds the callbacks, which have an internal type, C, in contexts.
type labelCallbacks[C ~func(map[string]string)] struct {
	key any // under which a context has a []C; nil: not known
}

// findLabelCallbacks returns the labelCallbacks for what register puts into a context. It finds
// the key by registering a callback: register looks for those that are there.
func findLabelCallbacks[C ~func(map[string]string)](register func(context.Context, C) context.Context) labelCallbacks[C] {
	asked := &askedKeys{Context: context.Background()}
	ctx := register(asked, func(map[string]string) {})
	for _, key := range asked.keys {
		if l := (labelCallbacks[C]{key}); len(l.in(ctx)) == 1 {
			return l
		}
	}
	logger.Warningf("gRPC keeps the callbacks for telemetry labels where dynxds does not find them: " +
		"metrics of RPCs have no grpc.lb.locality, grpc.lb.backend_service and csm labels.")
	return labelCallbacks[C]{}
}

func (l labelCallbacks[C]) in(ctx context.Context) []C {
	callbacks, _ := ctx.Value(l.key).([]C)
	return callbacks
}

func (l labelCallbacks[C]) update(ctx context.Context, labels ...map[string]string) bool {
	callbacks := l.in(ctx)
	if len(callbacks) == 0 {
		return false
	}
	all := make(map[string]string) // Callbacks may keep and change theirs.
	for _, some := range labels {
		maps.Copy(all, some)
	}
	for _, callback := range callbacks {
		callback(all)
	}
	return true
}

func (l labelCallbacks[C]) remove(ctx context.Context) context.Context {
	if len(l.in(ctx)) == 0 {
		return ctx
	}
	return context.WithValue(ctx, l.key, []C(nil))
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
