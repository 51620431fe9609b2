// Package oteltrace writes what becomes of an RPC into its OpenTelemetry span: where it was
// routed, to which cluster and endpoint, its retries and its mirrors.
//
// Pass DialOptions with those of the tracer:
//
//	opts = append(opts, opentelemetry.DialOption(…)) // google.golang.org/grpc/stats/opentelemetry
//	opts = append(opts, oteltrace.DialOptions()...)
//	conn, err := grpc.NewClient("xds:///echo.example.com", opts...)
//
// The span is the one in the context of the RPC when it reaches the interceptors of DialOptions:
// that of gRPC's OpenTelemetry plugin, if its option comes first, or one that the application has
// started. Stats handlers (otelgrpc.NewClientHandler) start theirs later, so that the span
// is the application's; of several RPCs in it, each has its events, and the last one the
// attributes. RPCs without a recording span pay for one look-up in their context.
//
// The span gets the attributes
//
//   - dynxds.route (Route.name, or else the path that the route matches), dynxds.virtual_host and
//     dynxds.cluster, the cluster that the route leads to,
//   - grpc.lb.backend_service, grpc.lb.locality and dynxds.priority of the endpoint picked last;
//     under an aggregate cluster, the first is the cluster that serves,
//   - dynxds.retries and dynxds.mirrors, their numbers, unless they are 0,
//
// and the events
//
//   - dynxds.waited_for_config: dynxds.duration, in seconds,
//   - dynxds.routed: rpc.method, dynxds.route, dynxds.virtual_host, dynxds.cluster,
//   - dynxds.filter_decided: dynxds.filter, dynxds.decision (see dynxds.TraceFilter),
//   - dynxds.picked: grpc.lb.backend_service, grpc.lb.locality, dynxds.priority, dynxds.endpoint,
//   - dynxds.not_picked: grpc.lb.backend_service, dynxds.reason (see dynxds.TracePick),
//   - dynxds.retried: dynxds.attempt, the number of the next attempt; dynxds.delay, in seconds,
//   - dynxds.mirrored: dynxds.cluster, dynxds.dropped.
//
// All but the last have dynxds.error if something failed. The events are those of dynxds.Trace, so
// they may be recorded concurrently, and after the RPC has ended for the application.
package oteltrace

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// DialOptions returns the dial options that write into the spans of a channel's RPCs. They have
// to come after those that start spans, and before those of dynxds.DialOptions, if these are
// used. Channels may share the result. Those that dynxds does not serve are not affected.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoker(observed(ctx), method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return streamer(observed(ctx), desc, cc, method, opts...)
		}),
	}
}

// observed returns ctx with hooks that write into its span, if that records.
func observed(ctx context.Context) context.Context {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return ctx
	}
	w := &writer{span: span}
	return rpctrace.With(ctx, &rpctrace.Trace{
		WaitedForConfig: w.waitedForConfig, Routed: w.routed, FilterDecided: w.filterDecided,
		Picked: w.picked, Retried: w.retried, Mirrored: w.mirrored,
	})
}

// writer writes the events of one RPC. Its methods may be called concurrently, like those of spans.
type writer struct {
	span    trace.Span
	mirrors atomic.Int64
}

// event adds an event, with the error if there is one. Its text may be that of a server: an exporter loses all
// spans of a batch for one that is not valid UTF-8.
func (w *writer) event(name string, err error, attributes ...attribute.KeyValue) {
	if err != nil {
		attributes = append(attributes, attribute.String("dynxds.error", strings.ToValidUTF8(err.Error(), "\uFFFD")))
	}
	cut(attributes)
	w.span.AddEvent(name, trace.WithAttributes(attributes...))
}

// cut cuts the texts of the attributes, which the caller or the control plane chose.
func cut(attributes []attribute.KeyValue) {
	for i, a := range attributes {
		if text := a.Value.AsString(); len(text) > bounds.ErrorText {
			attributes[i] = a.Key.String(bounds.Text(text, bounds.ErrorText))
		}
	}
}

// both adds an event and sets the span's attributes to the first n of it.
func (w *writer) both(n int, name string, err error, attributes ...attribute.KeyValue) {
	cut(attributes[:n])
	w.span.SetAttributes(attributes[:n]...)
	w.event(name, err, attributes...)
}

func (w *writer) waitedForConfig(c rpctrace.ConfigWait) {
	w.event("dynxds.waited_for_config", c.Err, attribute.Float64("dynxds.duration", c.Duration.Seconds()))
}

func (w *writer) routed(r rpctrace.Route) {
	w.both(3, "dynxds.routed", r.Err, attribute.String("dynxds.route", cmp.Or(r.Name, r.Match)), attribute.String("dynxds.virtual_host", r.VirtualHost),
		attribute.String("dynxds.cluster", r.Cluster), attribute.String("rpc.method", r.Method))
}

func (w *writer) filterDecided(f rpctrace.Filter) {
	w.event("dynxds.filter_decided", f.Err, attribute.String("dynxds.filter", f.Name), attribute.String("dynxds.decision", f.Decision))
}

func (w *writer) picked(p rpctrace.Pick) {
	if p.Err != nil {
		w.both(1, "dynxds.not_picked", p.Err, attribute.String("grpc.lb.backend_service", p.Cluster), attribute.String("dynxds.reason", p.Reason))
		return
	}
	locality := fmt.Sprintf("{region=%q, zone=%q, sub_zone=%q}", p.Region, p.Zone, p.SubZone)
	w.both(3, "dynxds.picked", nil, attribute.String("grpc.lb.backend_service", p.Cluster), attribute.String("grpc.lb.locality", locality),
		attribute.Int64("dynxds.priority", int64(p.Priority)), attribute.String("dynxds.endpoint", p.Endpoint))
}

func (w *writer) retried(r rpctrace.Retry) {
	w.span.SetAttributes(attribute.Int("dynxds.retries", r.Attempt-1))
	w.event("dynxds.retried", r.Err, attribute.Int("dynxds.attempt", r.Attempt), attribute.Float64("dynxds.delay", r.Delay.Seconds()))
}

func (w *writer) mirrored(m rpctrace.Mirror) {
	w.span.SetAttributes(attribute.Int64("dynxds.mirrors", w.mirrors.Add(1)))
	w.event("dynxds.mirrored", nil, attribute.String("dynxds.cluster", m.Cluster), attribute.Bool("dynxds.dropped", m.Dropped))
}
