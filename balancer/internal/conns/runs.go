package conns

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Run is a kind of consecutive failures, by what Envoy would have made of them: it counts a gRPC
// status as the HTTP status that it corresponds to.
type Run int

const (
	// Run5xx counts UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE and
	// DATA_LOSS.
	Run5xx Run = iota
	// RunGateway counts UNAVAILABLE (503) and DEADLINE_EXCEEDED (504).
	RunGateway
	// RunLocalOrigin counts RPCs without any answer, whose connection was lost or whose time was
	// over. It has a limit only if RunLimits.Split is set.
	RunLocalOrigin
	runs
)

// RunLimits says which runs of failures of an endpoint are reported.
type RunLimits struct {
	// Lengths are by Run. 0: such runs are not reported.
	Lengths [runs]uint32
	// Split says that RPCs without an answer count for RunLocalOrigin, not for the others.
	Split bool
}

// runCounter counts the consecutive failures of one endpoint. It is for any goroutine.
type runCounter struct {
	limits  RunLimits
	reached func(Run)
	lengths [runs]atomic.Uint32
	// pending is set from a call of reached to RestartRun, so that there is one call at a time.
	pending [runs]atomic.Bool
}

// WatchRuns has reached called, on the goroutine of an RPC, when a run is as long as l allows;
// and not again before RestartRun. A counter with other limits starts at 0. With the zero l
// nothing is counted.
func (h *Health) WatchRuns(l RunLimits, reached func(Run)) {
	before := h.runs.Load()
	switch {
	case l.Lengths == [runs]uint32{}:
		h.runs.Store(nil)
	case before == nil || before.limits != l:
		h.runs.Store(&runCounter{limits: l, reached: reached})
	}
}

// RestartRun has a run that was reported start at 0.
func (h *Health) RestartRun(r Run) {
	if c := h.runs.Load(); c != nil {
		c.lengths[r].Store(0)
		c.pending[r].Store(false)
	}
}

// RestartRuns has all runs start at 0.
func (h *Health) RestartRuns() {
	if c := h.runs.Load(); c != nil {
		for r := range runs {
			c.lengths[r].Store(0)
		}
	}
}

// count counts the end of an RPC. It takes no lock, and writes nothing while RPCs succeed.
func (c *runCounter) count(info balancer.DoneInfo) {
	if !info.BytesReceived {
		c.unanswered(info.Err)
		return
	}
	c.end(RunLocalOrigin)
	code := codes.OK
	if info.Err != nil {
		code = status.Code(info.Err)
	}
	switch code {
	case codes.Canceled:
		// In all likelihood by the client.
	case codes.Unavailable, codes.DeadlineExceeded:
		c.extend(Run5xx)
		c.extend(RunGateway)
	case codes.Unknown, codes.Unimplemented, codes.Internal, codes.DataLoss:
		c.extend(Run5xx)
		c.end(RunGateway)
	default:
		c.end(Run5xx)
		c.end(RunGateway)
	}
}

// unanswered is for an RPC without a single byte from the server. With other codes than these
// it was the client that ended it, for example because it could not encode the request.
func (c *runCounter) unanswered(err error) {
	if err == nil {
		return // It was picked for again.
	}
	switch code := status.Code(err); {
	case code != codes.Unavailable && code != codes.DeadlineExceeded:
	case c.limits.Split:
		c.extend(RunLocalOrigin)
	default:
		c.extend(Run5xx)
		c.extend(RunGateway)
	}
}

func (c *runCounter) extend(r Run) {
	limit := c.limits.Lengths[r]
	if limit > 0 && c.lengths[r].Add(1) >= limit && c.pending[r].CompareAndSwap(false, true) {
		c.reached(r)
	}
}

func (c *runCounter) end(r Run) {
	if c.lengths[r].Load() != 0 {
		c.lengths[r].Store(0)
	}
}
