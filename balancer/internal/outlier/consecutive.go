package outlier

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

// run is a kind of consecutive failures, as Envoy tells them apart: Envoy counts a gRPC status as the
// HTTP status that corresponds to it.
type run int

const (
	// run5xx counts UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE and
	// DATA_LOSS.
	run5xx run = iota
	// runGateway counts UNAVAILABLE (503) and DEADLINE_EXCEEDED (504).
	runGateway
	// runLocalOrigin counts RPCs without any answer, whose connection was lost or whose time was
	// over. It has a limit only if such RPCs do not count for the others.
	runLocalOrigin
	runs
)

// byRun are the methods that eject endpoints for runs.
var byRun = [runs]string{byConsecutive5xx, byConsecutiveGateway, byConsecutiveLocalOrigin}

// ejectionOf returns the configuration for runs of one kind. nil: nothing is ejected for them.
func ejectionOf(c *xdsresource.OutlierDetection, r run) *xdsresource.ConsecutiveEjection {
	return [runs]*xdsresource.ConsecutiveEjection{c.Consecutive5xx, c.ConsecutiveGatewayFailure, c.ConsecutiveLocalOriginFailure}[r]
}

// limits are how many failures in a row eject an endpoint, by run. 0: no number does.
type limits [runs]uint32

func limitsOf(c *xdsresource.OutlierDetection) (l limits) {
	for r := range runs {
		if e := ejectionOf(c, r); e != nil {
			l[r] = e.Failures
		}
	}
	return l
}

// runCounter counts the consecutive failures of one endpoint. It is for any goroutine.
type runCounter struct {
	detector *Detector
	endpoint *endpoint
	limits   limits
	// split says that RPCs without an answer count for runLocalOrigin, not for the others.
	split   bool
	lengths [runs]atomic.Uint32
}

// watchRuns has the runs of an endpoint counted by the configuration. With other limits than before they start at 0.
func (d *Detector) watchRuns(e *endpoint) {
	before, l, split := e.runs.Load(), limitsOf(d.config), d.config.SplitLocalOriginErrors
	switch {
	case l == limits{}:
		e.runs.Store(nil)
	case before == nil || before.limits != l || before.split != split:
		e.runs.Store(&runCounter{detector: d, endpoint: e, limits: l, split: split})
	}
}

// restartRuns has all runs start at 0.
func (e *endpoint) restartRuns() {
	if c := e.runs.Load(); c != nil {
		for r := range runs {
			c.lengths[r].Store(0)
		}
	}
}

// ended is called when an RPC to the endpoint has ended. It takes no lock.
func (e *endpoint) ended(info balancer.DoneInfo) {
	switch {
	case info.Err != nil:
		e.failures.Add(1)
	case info.BytesReceived:
		e.successes.Add(1)
	default:
		// The connection had ended before the RPC was sent, and gRPC picked again.
	}
	if c := e.runs.Load(); c != nil {
		c.count(info)
	}
}

// count counts the end of an RPC. It takes no lock, and writes nothing while RPCs succeed.
func (c *runCounter) count(info balancer.DoneInfo) {
	if !info.BytesReceived {
		c.unanswered(info.Err)
		return
	}
	c.end(runLocalOrigin)
	code := codes.OK
	if info.Err != nil {
		code = status.Code(info.Err)
	}
	switch code {
	case codes.Canceled:
		// In all likelihood by the client.
	case codes.Unavailable, codes.DeadlineExceeded:
		c.extend(run5xx)
		c.extend(runGateway)
	case codes.Unknown, codes.Unimplemented, codes.Internal, codes.DataLoss:
		c.extend(run5xx)
		c.end(runGateway)
	default:
		c.end(run5xx)
		c.end(runGateway)
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
	case c.split:
		c.extend(runLocalOrigin)
	default:
		c.extend(run5xx)
		c.extend(runGateway)
	}
}

func (c *runCounter) extend(r run) {
	if limit := c.limits[r]; limit > 0 && c.lengths[r].Add(1) == limit {
		c.detector.loop.PostFromPick(func() { c.detector.ranTooLong(c, r) })
	}
}

func (c *runCounter) end(r run) {
	if c.lengths[r].Load() != 0 {
		c.lengths[r].Store(0)
	}
}

// ranTooLong is called when an endpoint has failed as many RPCs in a row as the configuration at that time
// allowed. It ejects the endpoint at once, as Envoy does: the interval does not matter. The next run starts
// at 0, whether the endpoint is ejected or not.
func (d *Detector) ranTooLong(c *runCounter, r run) {
	c.lengths[r].Store(0)
	if d.byKey[c.endpoint.key] != c.endpoint {
		return
	}
	if e := ejectionOf(d.config, r); e != nil {
		d.detected(c.endpoint, time.Now(), byRun[r], e.EnforcementPercentage)
	}
}
