package xdsclient

import (
	"iter"
	"maps"
	"slices"
	"sync"

	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// Attach says that the channel with the given target uses the client, until detach is called:
// the client reports metrics to the channel's recorder (resolver.BuildOptions.MetricsRecorder),
// labelled with the target, and Dump lists the target. recorder may be nil. Attach must not be
// called from init functions.
//
// A channel reports the metrics of its client, which it may share with other channels. Of
// several channels with one target only the one that attached first reports, until it detaches:
// their metrics have the same labels. A channel without a recorder does not count in that.
//
// detach may be called again. A call of the recorder may be under way when detach returns.
func (c *XDSClient) Attach(target string, recorder estats.MetricsRecorder) (detach func()) {
	a := &attachment{target: target, recorder: recorder, labels: make(map[labelKey][]string)}
	unregister := func() {}
	if recorder != nil {
		a.metrics = grpcbridge.FindMetrics(Metrics())
		unregister = a.registerGauges(c)
	}
	c.attached.add(a)
	return sync.OnceFunc(func() {
		c.attached.remove(a)
		unregister()
	})
}

// attachment is a channel that uses a client.
type attachment struct {
	target string
	// recorder may be nil.
	recorder estats.MetricsRecorder
	metrics  map[string]*estats.MetricDescriptor // those that gRPC's registry has

	mu sync.Mutex
	// labels are the label values that were used, so that recording allocates nothing. There
	// are as many as servers and types of them.
	labels map[labelKey][]string
}

type labelKey struct{ server, typ string }

// count adds to a counter, if it is registered. typ is empty for counters without a resource type.
func (a *attachment) count(metric, server, typ string, n int) {
	counter := a.metrics[metric]
	if counter == nil || n == 0 {
		return
	}
	a.mu.Lock()
	key := labelKey{server, typ}
	labels := a.labels[key]
	if labels == nil {
		labels = []string{a.target, server}
		if typ != "" {
			labels = append(labels, typ)
		}
		a.labels[key] = labels
	}
	a.mu.Unlock()
	(*estats.Int64CountHandle)(counter).Record(a.recorder, int64(n), labels...)
}

// registerGauges has the recorder read the gauges when it needs them.
func (a *attachment) registerGauges(c *XDSClient) (unregister func()) {
	var gauges []estats.AsyncMetric
	for _, d := range a.metrics {
		if d.Type == estats.MetricTypeIntAsyncGauge {
			gauges = append(gauges, (*estats.Int64AsyncGaugeHandle)(d))
		}
	}
	if len(gauges) == 0 {
		return func() {}
	}
	return a.recorder.RegisterAsyncReporter(estats.AsyncMetricReporterFunc(func(to estats.AsyncMetricsRecorder) error {
		if slices.Contains(c.attached.reporters(), a) {
			for gauge, value := range c.takeCensus(a.target) {
				if d := a.metrics[gauge.metric]; d != nil {
					(*estats.Int64AsyncGaugeHandle)(d).Record(to, value, append([]string{a.target}, gauge.labels()...)...)
				}
			}
		}
		return nil
	}), gauges...)
}

// attachments are the channels that use a client. The lock is not held
// while a recorder is called.
type attachments struct {
	mu sync.Mutex
	// byTarget has the attachments of each target in their order.
	byTarget map[string][]*attachment
	// reporting has the attachments that report: each target's first one with a recorder. A change makes it nil, and reporters
	// makes a new slice.
	reporting []*attachment
}

func (s *attachments) add(a *attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byTarget[a.target], s.reporting = append(s.byTarget[a.target], a), nil
}

func (s *attachments) remove(a *attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := slices.DeleteFunc(s.byTarget[a.target], func(x *attachment) bool { return x == a })
	if s.byTarget[a.target], s.reporting = rest, nil; len(rest) == 0 {
		delete(s.byTarget, a.target)
	}
}

// targets returns the targets in order, each once.
func (s *attachments) targets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.byTarget))
}

// reporters returns the attachments that report.
func (s *attachments) reporters() []*attachment {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reporting == nil {
		s.reporting = make([]*attachment, 0, len(s.byTarget))
		for _, of := range s.byTarget {
			if i := slices.IndexFunc(of, func(x *attachment) bool { return x.recorder != nil }); i >= 0 {
				s.reporting = append(s.reporting, of[i])
			}
		}
	}
	return s.reporting
}

// reportersOf iterates the attachments that report what a stream receives.
func (s *attachments) reportersOf(ch *managementServer) iter.Seq[*attachment] {
	return func(yield func(*attachment) bool) {
		for _, a := range s.reporters() {
			if (ch.target == "" || ch.target == a.target) && !yield(a) {
				return
			}
		}
	}
}

// received counts the resources of a response, but not the errors in place of resources.
func (s *attachments) received(ch *managementServer, t *ResourceType, o *outcome) {
	for a := range s.reportersOf(ch) {
		a.count(metricValid, ch.server.URI, t.label(), o.total-o.unasked-o.passed-o.invalid)
		a.count(metricInvalid, ch.server.URI, t.label(), o.invalid)
		a.count(metricUnmatched, ch.server.URI, t.label(), o.unmatched)
	}
}

// serverFailed counts that a server became unreachable.
func (s *attachments) serverFailed(ch *managementServer) {
	for a := range s.reportersOf(ch) {
		a.count(metricServerFailure, ch.server.URI, "", 1)
	}
}
