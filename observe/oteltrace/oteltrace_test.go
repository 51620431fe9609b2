package oteltrace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// span records in memory; there is no SDK in this module.
type span struct {
	noop.Span
	ended      bool
	attributes map[attribute.Key]string
	events     []string
}

func (s *span) IsRecording() bool { return !s.ended }

func (s *span) SetAttributes(attributes ...attribute.KeyValue) {
	if s.attributes == nil {
		s.attributes = make(map[attribute.Key]string)
	}
	for _, a := range attributes {
		s.attributes[a.Key] = a.Value.String()
	}
}

func (s *span) AddEvent(name string, options ...trace.EventOption) {
	config := trace.NewEventConfig(options...)
	attributes := config.Attributes()
	texts := make([]string, len(attributes))
	for i, a := range attributes {
		texts[i] = fmt.Sprintf("%s=%s", a.Key, a.Value.String())
	}
	s.events = append(s.events, strings.Join(append([]string{name}, texts...), " "))
}

func TestEveryEvent(t *testing.T) {
	t.Parallel()
	s := new(span)
	hooks := rpctrace.FromContext(observed(trace.ContextWithSpan(t.Context(), s)))
	failure := errors.New("no")
	hooks.WaitedForConfig(rpctrace.ConfigWait{Target: "xds:///s", Duration: 1500 * time.Millisecond, Err: failure})
	hooks.Routed(rpctrace.Route{Method: "/s/m", RouteConfig: "rc", VirtualHost: "vh", Match: "/s/*", Cluster: "old"})
	hooks.Routed(rpctrace.Route{Method: "/s/m", RouteConfig: "rc", VirtualHost: "vh", Name: "r", Match: "/s/*", Cluster: "all", Err: failure})
	hooks.FilterDecided(rpctrace.Filter{Name: "authz", Decision: "denied", Err: failure})
	hooks.Picked(rpctrace.Pick{Cluster: "a", Reason: rpctrace.Unreachable, Err: failure})
	hooks.Picked(rpctrace.Pick{Cluster: "b", Region: "re", Zone: "z", Priority: 2, Endpoint: "h:1"})
	hooks.Retried(rpctrace.Retry{Attempt: 3, Delay: time.Second, Err: failure})
	hooks.Mirrored(rpctrace.Mirror{Cluster: "m"})
	hooks.Mirrored(rpctrace.Mirror{Cluster: "m", Dropped: true})
	const locality = `{region="re", zone="z", sub_zone=""}`
	want := []string{
		"dynxds.waited_for_config dynxds.duration=1.5 dynxds.error=no",
		"dynxds.routed dynxds.route=/s/* dynxds.virtual_host=vh dynxds.cluster=old rpc.method=/s/m",
		"dynxds.routed dynxds.route=r dynxds.virtual_host=vh dynxds.cluster=all rpc.method=/s/m dynxds.error=no",
		"dynxds.filter_decided dynxds.filter=authz dynxds.decision=denied dynxds.error=no",
		"dynxds.not_picked grpc.lb.backend_service=a dynxds.reason=unreachable dynxds.error=no",
		"dynxds.picked grpc.lb.backend_service=b grpc.lb.locality=" + locality + " dynxds.priority=2 dynxds.endpoint=h:1",
		"dynxds.retried dynxds.attempt=3 dynxds.delay=1 dynxds.error=no",
		"dynxds.mirrored dynxds.cluster=m dynxds.dropped=false",
		"dynxds.mirrored dynxds.cluster=m dynxds.dropped=true",
	}
	if !slices.Equal(s.events, want) {
		t.Errorf("events\n%s\nwant\n%s", strings.Join(s.events, "\n"), strings.Join(want, "\n"))
	}
	for key, want := range map[attribute.Key]string{
		"dynxds.route": "r", "dynxds.virtual_host": "vh", "dynxds.cluster": "all", "grpc.lb.backend_service": "b", "grpc.lb.locality": locality,
		"dynxds.priority": "2", "dynxds.retries": "2", "dynxds.mirrors": "2",
	} {
		if s.attributes[key] != want {
			t.Errorf("%s is %q, want %q", key, s.attributes[key], want)
		}
		delete(s.attributes, key)
	}
	if len(s.attributes) > 0 {
		t.Errorf("the span also has %v", s.attributes)
	}
}

// A server's message need not be UTF-8, but an exporter refuses a batch with an attribute that is not.
func TestErrorsAreUTF8(t *testing.T) {
	t.Parallel()
	s := new(span)
	hooks := rpctrace.FromContext(observed(trace.ContextWithSpan(t.Context(), s)))
	hooks.Retried(rpctrace.Retry{Attempt: 2, Err: errors.New("from a server: \xff")})
	if want := []string{"dynxds.retried dynxds.attempt=2 dynxds.delay=0 dynxds.error=from a server: \uFFFD"}; !slices.Equal(s.events, want) {
		t.Errorf("events %q, want %q", s.events, want)
	}
}

// A method or a name of a cluster may have any length.
func TestLongTextsAreCut(t *testing.T) {
	t.Parallel()
	s := new(span)
	hooks := rpctrace.FromContext(observed(trace.ContextWithSpan(t.Context(), s)))
	long := strings.Repeat("x", 100_000)
	hooks.Routed(rpctrace.Route{Method: long, VirtualHost: long, Name: long, Cluster: long, Err: errors.New(long)})
	for key, value := range s.attributes {
		if len(value) > bounds.ErrorText+100 {
			t.Errorf("%s has %d bytes", key, len(value))
		}
	}
	if len(s.attributes) != 3 || len(s.events) != 1 || len(s.events[0]) > 5*(bounds.ErrorText+100) {
		t.Errorf("%d attributes, and events of %d bytes", len(s.attributes), len(strings.Join(s.events, "")))
	}
}

func TestWithoutARecordingSpan(t *testing.T) {
	for name, ctx := range map[string]context.Context{
		"no span":    context.Background(),
		"ended span": trace.ContextWithSpan(context.Background(), &span{ended: true}),
		"not sampled": trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})),
	} {
		if got := testing.AllocsPerRun(100, func() {
			if observed(ctx) != ctx {
				t.Errorf("%s: the RPC has hooks", name)
			}
		}); got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
}
