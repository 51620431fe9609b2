package rpcmetrics

import (
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// call is one RPC. It is its rpctrace.Observer.
type call struct {
	metrics *Recorder
	begin   time.Time
	labels  atomic.Pointer[labelSet]
}

// Begin returns the Observer of an RPC that begins. m is not nil.
func (m *Recorder) Begin() rpctrace.Observer {
	c := &call{metrics: m, begin: time.Now()}
	c.labels.Store(m.unrouted)
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
	l := c.metrics.labels(c.labels.Load().key.route, p.Cluster, priority)
	c.labels.Store(l)
	if p.Err != nil {
		c.metrics.failures.Record(c.metrics.to, 1, l.key.target, l.key.cluster, p.Reason)
	}
}

func (c *call) Resending() (count func()) {
	before := c.labels.Load()
	return func() { c.metrics.retries.Record(c.metrics.to, 1, before.byRoute...) }
}

func (c *call) Ended(err error) {
	m, l := c.metrics, c.labels.Load()
	m.calls.Record(m.to, 1, append(slices.Clip(l.byRoute), outcomes.CodeName(int(status.Code(err))))...)
	m.duration.Record(m.to, time.Since(c.begin).Seconds(), l.byRoute...)
}
