package rpcmetrics

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	estats "google.golang.org/grpc/experimental/stats"
)

// age is the age of the configuration of a Recorder's channel.
type age struct {
	since      atomic.Pointer[time.Time] // when it came into use; nil: there is none
	unregister func()
}

// reporters are the Recorders of the process by target, in the order of their creation. The first
// one of a target that has a configuration reports its age, as all have the same labels.
var reporters = struct {
	sync.Mutex
	byTarget map[string][]*Recorder
}{byTarget: make(map[string][]*Recorder)}

func (m *Recorder) startAge() {
	reporters.Lock()
	reporters.byTarget[m.target] = append(reporters.byTarget[m.target], m)
	reporters.Unlock()
	m.age.unregister = m.to.RegisterAsyncReporter(estats.AsyncMetricReporterFunc(m.reportAge), m.handles.age)
}

func (m *Recorder) stopAge() {
	m.age.unregister()
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
		m.age.since.Store(&now)
	default:
		m.age.since.Store(nil)
	}
}

func (m *Recorder) reportAge(to estats.AsyncMetricsRecorder) error {
	if since := m.age.since.Load(); since != nil && m.reportsFirst() {
		m.handles.age.Record(to, int64(time.Since(*since).Seconds()), m.target)
	}
	return nil
}

// reportsFirst reports whether m is the first Recorder of its target that has a configuration.
func (m *Recorder) reportsFirst() bool {
	reporters.Lock()
	defer reporters.Unlock()
	for _, x := range reporters.byTarget[m.target] {
		if x.age.since.Load() != nil {
			return x == m
		}
	}
	return false
}
