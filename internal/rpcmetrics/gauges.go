package rpcmetrics

import (
	"slices"
	"sync"
	"time"

	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/outcomes"
)

// reporters are the Recorders of the process by target, in the order of their creation. The first
// one of a target that has a configuration reports, as all have the same labels.
var reporters = struct {
	sync.Mutex
	byTarget map[string][]*Recorder
}{byTarget: make(map[string][]*Recorder)}

// Close ends the reports of the configuration's age.
func (m *Recorder) Close() {
	if m == nil {
		return
	}
	m.unregister()
	reporters.Lock()
	defer reporters.Unlock()
	rest := slices.DeleteFunc(reporters.byTarget[m.target], func(x *Recorder) bool { return x == m })
	if reporters.byTarget[m.target] = rest; len(rest) == 0 {
		delete(reporters.byTarget, m.target)
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

func (m *Recorder) report(to estats.AsyncMetricsRecorder) error {
	since := m.since.Load()
	if since == nil || !m.reportsFirst() {
		return nil
	}
	m.gauge(metricAge).Record(to, int64(time.Since(*since).Seconds()), m.target)
	record := func(k outcomes.Key, n int64) { m.gauge(metricInFlight).Record(to, n, k.Target, k.Route, k.Cluster) }
	outcomes.InFlight(m.target, record)
	// Nobody knows the channels of these RPCs, and certificates are the process's. So each channel reports all of them, with the same
	// labels: they are one value.
	outcomes.InFlight(outcomes.Others, record)
	for _, c := range certfiles.Identities() {
		m.gauge(metricLeft).Record(to, int64(c.Left().Seconds()), c.File)
		m.gauge(metricLifetime).Record(to, int64(c.Lifetime().Seconds()), c.File)
	}
	return nil
}

// reportsFirst reports whether m is the first Recorder of its target that has a configuration.
func (m *Recorder) reportsFirst() bool {
	reporters.Lock()
	defer reporters.Unlock()
	for _, x := range reporters.byTarget[m.target] {
		if x.since.Load() != nil {
			return x == m
		}
	}
	return false
}
