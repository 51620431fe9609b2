package rpcmetrics

import (
	"strconv"
	"sync/atomic"
	"time"

	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// call is one RPC. It is its rpctrace.Observer.
type call struct {
	metrics *Recorder
	begin   time.Time
	labels  atomic.Pointer[labels]
}

// Begin returns the Observer of an RPC that begins. m is not nil.
func (m *Recorder) Begin() rpctrace.Observer {
	c := &call{metrics: m, begin: time.Now()}
	c.labels.Store(&m.unrouted)
	return c
}

func (c *call) Routed(r rpctrace.Route) {
	c.labels.Store(c.metrics.labels(outcomes.RouteLabel(r.Name, r.Match), r.Cluster, ""))
}

func (c *call) Picked(p rpctrace.Pick) {
	priority := ""
	if p.Err == nil {
		priority = strconv.FormatUint(uint64(p.Priority), 10)
	}
	l := c.metrics.labels(c.labels.Load()[1], p.Cluster, priority)
	c.labels.Store(l)
	if p.Err != nil {
		c.metrics.count(metricFailures, l[0], l[2], p.Reason)
	}
}

func (c *call) Resending() (count func()) {
	before := c.labels.Load()
	return func() { c.metrics.count(metricRetries, before[:]...) }
}

func (c *call) Ended(err error) {
	m, l := c.metrics, c.labels.Load()
	m.count(metricCalls, append(l[:4:4], outcomes.CodeName(int(status.Code(err))))...)
	(*estats.Float64HistoHandle)(m.metrics[metricDuration]).Record(m.to, time.Since(c.begin).Seconds(), l[:]...)
}
