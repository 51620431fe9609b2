package outlier

import (
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

// sameRuns reports whether failures in a row count as before.
func sameRuns(a, b *xdsresource.OutlierDetection) bool {
	for r := range a.Consecutive {
		if a.Consecutive[r].Failures != b.Consecutive[r].Failures {
			return false
		}
	}
	return a.SplitLocalOriginErrors == b.SplitLocalOriginErrors
}

// restartRuns has all runs start at 0.
func (e *endpoint) restartRuns() {
	for r := range e.lengths {
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
	timedOut := code == codes.Unavailable || code == codes.DeadlineExceeded
	if info.BytesReceived {
		e.end(xdsresource.LocalOrigin)
	}
	switch {
	case code == codes.Canceled, !timedOut && !info.BytesReceived:
		// It was the client that ended it, for example because it could not encode the request.
	case timedOut && !info.BytesReceived && config.SplitLocalOriginErrors:
		e.extend(config, xdsresource.LocalOrigin)
	case timedOut:
		e.extend(config, xdsresource.FiveHundreds)
		e.extend(config, xdsresource.Gateway)
	case code == codes.Unknown, code == codes.Unimplemented, code == codes.Internal, code == codes.DataLoss:
		e.extend(config, xdsresource.FiveHundreds)
		e.end(xdsresource.Gateway)
	default:
		e.end(xdsresource.FiveHundreds)
		e.end(xdsresource.Gateway)
	}
}

func (e *endpoint) extend(config *xdsresource.OutlierDetection, r xdsresource.Run) {
	if limit := config.Consecutive[r].Failures; limit > 0 && e.lengths[r].Add(1) == limit {
		e.detector.env.Loop.PostFromPick(func() { e.detector.ranTooLong(e, r) })
	}
}

func (e *endpoint) end(r xdsresource.Run) {
	if e.lengths[r].Load() != 0 {
		e.lengths[r].Store(0)
	}
}

// ranTooLong is called when an endpoint has failed as many RPCs in a row as the configuration at that time
// allowed. It ejects the endpoint at once, as Envoy does: the interval does not matter. The next run starts
// at 0, whether the endpoint is ejected or not.
func (d *Detector) ranTooLong(e *endpoint, r xdsresource.Run) {
	e.lengths[r].Store(0)
	if d.byKey[e.key] != e {
		return
	}
	if by := d.config.Load().Consecutive[r]; by.Failures > 0 {
		d.detected(e, time.Now(), byRun[r], by.EnforcementPercentage)
	}
}
