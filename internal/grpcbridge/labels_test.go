package grpcbridge_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"google.golang.org/grpc/experimental/stats/telemetry"

	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// Should it fail after an update of gRPC, gRPC keeps the callbacks for telemetry labels
// elsewhere now, and RPCs of dynxds have no labels.
func TestUpdateLabels(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"grpc.lb.locality": "here"}
	if grpcbridge.TakesLabels(t.Context()) || grpcbridge.UpdateLabels(t.Context(), labels) {
		t.Error("callbacks were found in a context without any")
	}
	var got []string
	ctx := telemetry.NewContextWithLabelCallback(t.Context(), func(l map[string]string) {
		got = append(got, "first "+l["grpc.lb.locality"])
		l["more"] = "x"
	})
	inner := telemetry.NewContextWithLabelCallback(ctx, func(l map[string]string) {
		got = append(got, "second "+l["grpc.lb.locality"])
	})
	if !grpcbridge.TakesLabels(inner) || !grpcbridge.UpdateLabels(inner, labels) {
		t.Fatal("the callbacks that gRPC has put into the context were not found")
	}
	if want := []string{"first here", "second here"}; !slices.Equal(got, want) {
		t.Errorf("callbacks called: %q, want %q", got, want)
	}
	if want := map[string]string{"grpc.lb.locality": "here"}; !maps.Equal(labels, want) {
		t.Errorf("a callback has changed the labels to %v", labels)
	}
}

func TestUpdateLabelsAllocatesNothingWithoutCallbacks(t *testing.T) {
	ctx, labels := t.Context(), map[string]string{"a": "b"}
	if n := testing.AllocsPerRun(100, func() { grpcbridge.UpdateLabels(ctx, labels) }); n != 0 {
		t.Errorf("%v allocations without callbacks, want none", n)
	}
}

type otherCallback func(map[string]string)

type otherKey struct{}

// A gRPC that keeps the callbacks in another way gets no labels, but nothing panics.
func TestUpdateLabelsWithAnUnknownGRPC(t *testing.T) {
	t.Parallel()
	for name, register := range map[string]func(context.Context, otherCallback) context.Context{
		"it keeps them in another type": func(ctx context.Context, c otherCallback) context.Context {
			_ = ctx.Value(otherKey{})
			return context.WithValue(ctx, otherKey{}, c)
		},
		"it does not look for others": func(ctx context.Context, c otherCallback) context.Context {
			return context.WithValue(ctx, otherKey{}, []otherCallback{c})
		},
		"it keeps nothing": func(ctx context.Context, _ otherCallback) context.Context { return ctx },
	} {
		ctx := register(t.Context(), func(map[string]string) { t.Errorf("%s: the callback was called", name) })
		update, remove := grpcbridge.LabelFunctions(register)
		if update(remove(ctx), map[string]string{"a": "b"}) {
			t.Errorf("%s: callbacks were found", name)
		}
	}
}

func TestWithoutLabelCallbacks(t *testing.T) {
	t.Parallel()
	if ctx := t.Context(); grpcbridge.WithoutLabelCallbacks(ctx) != ctx {
		t.Error("a context without callbacks was replaced")
	}
	ctx := telemetry.NewContextWithLabelCallback(t.Context(), func(map[string]string) { t.Error("the removed callback was called") })
	ctx = grpcbridge.WithoutLabelCallbacks(ctx)
	if grpcbridge.UpdateLabels(ctx, map[string]string{"a": "b"}) {
		t.Error("the removed callback was found")
	}
	called := false
	ctx = telemetry.NewContextWithLabelCallback(ctx, func(map[string]string) { called = true })
	if !grpcbridge.UpdateLabels(ctx, map[string]string{"a": "b"}) || !called {
		t.Error("a callback that was registered later was not called")
	}
}
