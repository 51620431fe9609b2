package rpcmetrics

import (
	"time"

	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/outcomes"
)

// Close ends the reports of gauges.
func (m *Recorder) Close() {
	if m != nil {
		m.unregister()
	}
}

// Configured is called when the channel begins to use another configuration, or to have none.
func (m *Recorder) Configured(ok bool) {
	switch {
	case m == nil:
	case ok:
		now := time.Now()
		m.since.Store(&now)
	default:
		m.since.Store(nil)
	}
}

// report reports all gauges, which are of the process but for the age: all channels of a target report them with the same labels, so that they are
// one value in a plugin.
func (m *Recorder) report(to estats.AsyncMetricsRecorder) error {
	if since := m.since.Load(); since != nil {
		m.gauge(metricAge).Record(to, int64(time.Since(*since).Seconds()), m.target)
	}
	record := func(k outcomes.Key, n int64) { m.gauge(metricInFlight).Record(to, n, k.Target, k.Route, k.Cluster) }
	outcomes.InFlight(m.target, record)
	// Nobody knows the channels of these RPCs.
	outcomes.InFlight(outcomes.Others, record)
	for _, c := range certfiles.Identities() {
		m.gauge(metricLeft).Record(to, int64(c.Left().Seconds()), c.File)
		m.gauge(metricLifetime).Record(to, int64(c.Lifetime().Seconds()), c.File)
	}
	return nil
}
