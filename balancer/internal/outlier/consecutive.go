package outlier

import (
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

// sameRuns reports whether failures in a row count as before.
func sameRuns(a, b *xdsresource.OutlierDetection) bool {
	for r := range runs {
		x, y := ejectionOf(a, r), ejectionOf(b, r)
		if (x == nil) != (y == nil) || x != nil && x.Failures != y.Failures {
			return false
		}
	}
	return a.SplitLocalOriginErrors == b.SplitLocalOriginErrors
}

// restartRuns has all runs start at 0.
func (e *endpoint) restartRuns() {
	for r := range runs {
		e.lengths[r].Store(0)
	}
}

// ended is called when an RPC to the endpoint has ended. It takes no lock, and writes nothing about runs while RPCs succeed.
func (e *endpoint) ended(info balancer.DoneInfo) {
	switch {
	case info.Err != nil:
		e.failures.Add(1)
	case info.BytesReceived:
		e.successes.Add(1)
	default:
		return // The connection had ended before the RPC was sent, and gRPC picked again.
	}
	config := e.detector.config.Load()
	if config == nil {
		return
	}
	code := status.Code(info.Err)
	if !info.BytesReceived {
		e.unanswered(config, code)
		return
	}
	e.end(runLocalOrigin)
	switch code {
	case codes.Canceled:
		// In all likelihood by the client.
	case codes.Unavailable, codes.DeadlineExceeded:
		e.extend(config, run5xx)
		e.extend(config, runGateway)
	case codes.Unknown, codes.Unimplemented, codes.Internal, codes.DataLoss:
		e.extend(config, run5xx)
		e.end(runGateway)
	default:
		e.end(run5xx)
		e.end(runGateway)
	}
}

// unanswered is for an RPC without a single byte from the server. With other codes than these
// it was the client that ended it, for example because it could not encode the request.
func (e *endpoint) unanswered(config *xdsresource.OutlierDetection, code codes.Code) {
	switch {
	case code != codes.Unavailable && code != codes.DeadlineExceeded:
	case config.SplitLocalOriginErrors:
		e.extend(config, runLocalOrigin)
	default:
		e.extend(config, run5xx)
		e.extend(config, runGateway)
	}
}

func (e *endpoint) extend(config *xdsresource.OutlierDetection, r run) {
	if by := ejectionOf(config, r); by != nil && e.lengths[r].Add(1) == by.Failures {
		e.detector.env.Loop.PostFromPick(func() { e.detector.ranTooLong(e, r) })
	}
}

func (e *endpoint) end(r run) {
	if e.lengths[r].Load() != 0 {
		e.lengths[r].Store(0)
	}
}

// ranTooLong is called when an endpoint has failed as many RPCs in a row as the configuration at that time
// allowed. It ejects the endpoint at once, as Envoy does: the interval does not matter. The next run starts
// at 0, whether the endpoint is ejected or not.
func (d *Detector) ranTooLong(e *endpoint, r run) {
	e.lengths[r].Store(0)
	if d.byKey[e.key] != e {
		return
	}
	if by := ejectionOf(d.config.Load(), r); by != nil {
		d.detected(e, time.Now(), byRun[r], by.EnforcementPercentage)
	}
}
