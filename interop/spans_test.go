package interop_test

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	experimental "google.golang.org/grpc/experimental/opentelemetry"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/stats/opentelemetry"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/gocp"
	"github.com/dynxds/dynxds/observe/oteltrace"
	"github.com/dynxds/dynxds/testutils"
)

// An RPC that is mirrored and retried: the span of gRPC's OpenTelemetry plugin has both.
func TestSpansRecordTheEventsOfRPCs(t *testing.T) {
	t.Parallel()
	control := gocp.StartOver(t, gocp.Delta, nil)
	blue, green := testutils.StartBackend(t, "blue"), testutils.StartBackend(t, "green")
	failTimes(blue, 1)
	all := xdsmsg.RouteConfig("routes", service, xdsmsg.PathRoute("/other/Method", "green"), xdsmsg.With(xdsmsg.PrefixRoute("/", "blue"),
		`name: "everything" route { retry_policy { retry_on: "unavailable" num_retries { value: 1 } } request_mirror_policies { cluster: "green" } }`))
	control.Set(t, listener("routes"), all, cluster("blue", "blue"), placed("blue", "here", blue), cluster("green", "green"), placed("green", "there", green))

	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	opts := append([]grpc.DialOption{opentelemetry.DialOption(opentelemetry.Options{
		TraceOptions: experimental.TraceOptions{TracerProvider: provider, TextMapPropagator: propagation.TraceContext{}},
	})}, oteltrace.DialOptions()...)
	cc := dial(t, dynxdsBuilder(t, control), "xds:///"+service, opts...)
	ctx := testutils.Context(t)
	_, err := testpb.NewTestServiceClient(cc).EmptyCall(ctx, new(testpb.Empty))
	xdstest.NoError(t, err)
	xdstest.NoError(t, green.Wait(ctx, 1))
	xdstest.NoError(t, cc.Close())
	span := endedSpan(t, recorder, "Sent.grpc.testing.TestService.EmptyCall")

	const locality = `{region="here", zone="z", sub_zone="s"}`
	wantAttributes := map[attribute.Key]string{
		"dynxds.route": "everything", "dynxds.cluster": "blue", "dynxds.virtual_host": all.VirtualHosts[0].Name,
		"grpc.lb.backend_service": "blue", "grpc.lb.locality": locality, "dynxds.priority": "0",
		"dynxds.retries": "1", "dynxds.mirrors": "1",
	}
	attributes := attributesOf(span.Attributes())
	for key, want := range wantAttributes {
		if attributes[key] != want {
			t.Errorf("%s is %q, want %q", key, attributes[key], want)
		}
	}
	events := make(map[string]int)
	for _, e := range span.Events() {
		if _, ours := wantEvents[e.Name]; !ours {
			continue // the plugin's
		}
		events[e.Name]++
		got := attributesOf(e.Attributes)
		switch {
		case e.Name == "dynxds.picked" && got["dynxds.endpoint"] != blue.Addr(),
			e.Name == "dynxds.mirrored" && got["dynxds.cluster"] != "green",
			e.Name == "dynxds.retried" && got["dynxds.attempt"] != "2":
			t.Errorf("%s with %v", e.Name, got)
		}
	}
	if !maps.Equal(events, wantEvents) {
		t.Errorf("events %v, want %v", events, wantEvents)
	}
}

// wantEvents are the events of the span by name. The mirror's own pick is not among them.
var wantEvents = map[string]int{
	"dynxds.waited_for_config": 1, "dynxds.routed": 1, "dynxds.mirrored": 1, "dynxds.picked": 2, "dynxds.retried": 1,
}

func attributesOf(list []attribute.KeyValue) map[attribute.Key]string {
	got := make(map[attribute.Key]string, len(list))
	for _, a := range list {
		got[a.Key] = a.Value.String()
	}
	return got
}

// endedSpan returns the span of a name, which has ended.
func endedSpan(t *testing.T, recorder *tracetest.SpanRecorder, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	var names []string
	for _, s := range recorder.Ended() {
		if s.Name() == name {
			return s
		}
		names = append(names, s.Name())
	}
	t.Fatalf("no span %s has ended, only %q", name, names)
	return nil
}

// failTimes makes a backend fail its next n RPCs with UNAVAILABLE.
func failTimes(b *testutils.Backend, n int32) {
	var got atomic.Int32
	b.SetBehaviour(func(context.Context, testutils.RPC) error {
		if got.Add(1) <= n {
			return testutils.TrailersOnly(status.Error(codes.Unavailable, "not yet"))
		}
		return nil
	})
}
