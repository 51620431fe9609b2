package configselector_test

import (
	"context"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// meter adds up the metrics of a channel, by "name label label".
type meter struct {
	estats.UnimplementedMetricsRecorder
	xdstest.State
	sums map[string]float64
}

func (m *meter) add(d *estats.MetricDescriptor, n float64, labels []string) {
	m.Change(func() {
		if m.sums == nil {
			m.sums = map[string]float64{}
		}
		m.sums[strings.Join(append([]string{d.Name}, labels...), " ")] += n
	})
}

func (m *meter) RecordInt64Count(h *estats.Int64CountHandle, n int64, labels ...string) {
	m.add(h.Descriptor(), float64(n), labels)
}

func (m *meter) RecordInt64Histo(h *estats.Int64HistoHandle, n int64, labels ...string) {
	m.add(h.Descriptor(), float64(n), labels)
}

func (m *meter) RecordFloat64Histo(h *estats.Float64HistoHandle, n float64, labels ...string) {
	m.add(h.Descriptor(), n, labels)
}

func (m *meter) expect(t *testing.T, want map[string]float64) {
	t.Helper()
	m.Change(func() { xdstest.Equal(t, "recorded", want, maps.Clone(m.sums)) })
}

// observer counts the attempts after the first of RPCs, and their ends.
type observer struct{ retries, ended *atomic.Int64 }

func (*observer) Routed(rpctrace.Route) {}
func (*observer) Picked(rpctrace.Pick)  {}
func (o *observer) Resending() func()   { return func() { o.retries.Add(1) } }
func (o *observer) Ended(error)         { o.ended.Add(1) }

// TestMetricsOfRetries: gRFC A96: "grpc.client.call.retries", "grpc.client.call.hedges", "grpc.client.call.retry_delay"; gRFC A66: methods
// of generated code have their names.
func TestMetricsOfRetries(t *testing.T) {
	t.Parallel()
	waits, fails := answer{code: codes.Unavailable, pushback: "1500"}, answer{code: codes.Unavailable}
	static := []grpc.CallOption{grpc.StaticMethod()}
	for _, test := range []struct {
		name    string
		route   *xdsresource.Route
		opts    []grpc.CallOption
		answers []answer
		refuse  bool // the picker refuses retries
		want    map[string]float64
	}{
		{name: "no retry", route: retried(xdsresource.RetryPolicy{}), answers: []answer{{}}},
		{name: "retries", route: retried(xdsresource.RetryPolicy{}), opts: static, answers: []answer{waits, waits, {}},
			want: map[string]float64{"retries s/m": 2, "retry_delay s/m": 3}},
		{name: "a retry at once", route: retried(xdsresource.RetryPolicy{}), opts: static, answers: []answer{{code: codes.Unavailable, pushback: "0"}, {}},
			want: map[string]float64{"retries s/m": 1, "retry_delay s/m": 0}},
		{name: "of a method that is not static", route: retried(xdsresource.RetryPolicy{}), answers: []answer{waits, {}},
			want: map[string]float64{"retries other": 1, "retry_delay other": 1.5}},
		{name: "a retry that is refused", route: retried(xdsresource.RetryPolicy{}), answers: []answer{fails}, refuse: true},
		{name: "hedges", route: hedged(3), opts: static, answers: []answer{hangs, hangs, {}}, want: map[string]float64{"hedges s/m": 2}},
		{name: "a hedge that an answer to the first attempt forestalls", route: retried(xdsresource.RetryPolicy{
			PerTryTimeout: time.Second, Hedges: true, BaseBackoff: time.Second, MaxBackoff: time.Second,
		}), answers: []answer{{after: 1500 * ms}}},
		{name: "a wait in which nothing is under way", route: hedged(3), opts: static, answers: []answer{waits, hangs, {}},
			want: map[string]float64{"hedges s/m": 2, "retry_delay s/m": 1.5}},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			eachKindInABubble(t, func(t *testing.T, k kind) {
				var m meter
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{test.route}, metrics: &m, handle: new(attempts).handle(test.answers)})
				w.pick = func(ctx context.Context) error {
					if d := decision.FromContext(ctx); test.refuse && d.Attempt() != nil && d.Attempt().Retry {
						d.Fail(rpctrace.MaxRetries)
						return status.Error(codes.Unavailable, "too many retries")
					}
					return nil
				}
				var counted, ended atomic.Int64 // in dynxds's own metrics
				w.ch.Observe = func() rpctrace.Observer { return &observer{retries: &counted, ended: &ended} }
				w.makeRPC(t.Context(), k, "/s/m", []string{"x"}, test.opts...)
				time.Sleep(time.Minute)
				sent := 0.0
				var want map[string]float64
				for name, n := range test.want {
					if want == nil {
						want = map[string]float64{}
					}
					want["grpc.client.call."+name+" passthrough:///bufconn"] = n
					if !strings.HasPrefix(name, "retry_delay ") {
						sent += n
					}
				}
				xdstest.Equal(t, "attempts counted one by one", int64(sent), counted.Load())
				xdstest.Equal(t, "ends of RPCs", 1, ended.Load())
				m.expect(t, want)
			})
		})
	}
}
