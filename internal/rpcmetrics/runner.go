package rpcmetrics

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// Runner returns a Runner that records the RPCs of next, or next if nothing is to be recorded.
func (m *Recorder) Runner(next grpcbridge.Runner) grpcbridge.Runner {
	if m == nil {
		return next
	}
	return &runner{m, next}
}

type runner struct {
	metrics *Recorder
	next    grpcbridge.Runner
}

func (r *runner) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts []grpc.CallOption) error {
	c := r.metrics.start()
	err := r.next.Unary(c.observe(ctx), method, req, reply, cc, invoker, opts)
	c.ended(err)
	return err
}

func (r *runner) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts []grpc.CallOption) (grpc.ClientStream, error) {
	c := r.metrics.start()
	// It is called once, also if there is no stream.
	opts = append(slices.Clip(opts), grpc.OnFinish(c.ended))
	return r.next.Stream(c.observe(ctx), desc, cc, method, streamer, opts)
}

// call is one RPC. Its hooks may be called concurrently.
type call struct {
	metrics *Recorder
	begin   time.Time
	labels  atomic.Pointer[labelSet]
}

func (m *Recorder) start() *call {
	c := &call{metrics: m, begin: time.Now()}
	c.labels.Store(m.unrouted)
	return c
}

// observe returns the context for the Runner that carries out the RPC.
func (c *call) observe(ctx context.Context) context.Context {
	return rpctrace.Observe(ctx, &rpctrace.Trace{Routed: c.routed, Picked: c.picked}, c.resending)
}

func (c *call) routed(r rpctrace.Route) {
	c.labels.Store(c.metrics.labels(outcomes.RouteLabel(r.Name, r.Match), r.Cluster, ""))
}

func (c *call) picked(p rpctrace.Pick) {
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

func (c *call) resending() (count func()) {
	before := c.labels.Load()
	return func() { c.metrics.retries.Record(c.metrics.to, 1, before.byRoute...) }
}

func (c *call) ended(err error) {
	m, l := c.metrics, c.labels.Load()
	m.calls.Record(m.to, 1, append(slices.Clip(l.byRoute), statusLabel(err))...)
	m.duration.Record(m.to, time.Since(c.begin).Seconds(), l.byRoute...)
}

// statusLabel returns the status as gRPC's metrics have it, "OK" or "DEADLINE_EXCEEDED".
func statusLabel(err error) string {
	c := int32(status.Code(err))
	if _, ok := code.Code_name[c]; !ok {
		return other
	}
	return code.Code_name[c]
}
