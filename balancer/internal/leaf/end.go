package leaf

import (
	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/endpoints"
	"github.com/dynxds/dynxds/balancer/internal/traffic"
)

// end is what happens when an RPC on a SubConn ends. RPCs that are counted by the same
// things share one, so that none of them allocates.
type end struct {
	counter *traffic.Counter
	target  *endpoints.Target // nil: the load is not reported
	done    func(balancer.DoneInfo)
}

// Begin starts an RPC on the SubConn, which counter has counted, and returns what gRPC is
// to call when the RPC ends. If reported is true the RPC is counted for load reports. Its
// end is counted for outlier detection.
func (s *SubConn) Begin(counter *traffic.Counter, reported bool) func(balancer.DoneInfo) {
	var target *endpoints.Target
	if reported {
		target = s.endpoint.Target()
	}
	e := s.end.Load()
	if e == nil || e.counter != counter || e.target != target {
		e = s.newEnd(counter, target)
		s.end.Store(e)
	}
	target.Start()
	return e.done
}

func (s *SubConn) newEnd(counter *traffic.Counter, target *endpoints.Target) *end {
	return &end{counter: counter, target: target, done: func(info balancer.DoneInfo) {
		counter.End()
		target.End(info)
		s.endpoint.Count(info)
	}}
}
