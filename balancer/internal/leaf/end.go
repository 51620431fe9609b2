package leaf

import (
	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/loads"
	"github.com/dynxds/dynxds/balancer/internal/traffic"
)

// end is what is done when an RPC on a SubConn ends. It is made once for what the
// RPCs are counted by, and kept, so that they do not each allocate one.
type end struct {
	counter  *traffic.Counter
	registry *loads.Registry
	place    *loads.Place // nil: the load of the cluster is not reported
	target   *loads.Target
	done     func(balancer.DoneInfo)
}

// Begin is the start of an RPC on the SubConn that counter has counted. It returns
// what gRPC is to call when the RPC ends. It counts the RPC for load reports, unless
// registry is nil, and, at its end, for outlier detection.
func (s *SubConn) Begin(counter *traffic.Counter, registry *loads.Registry) func(balancer.DoneInfo) {
	e := s.end.Load()
	if e == nil || e.counter != counter || e.registry != registry || e.target != e.place.Target() {
		e = s.newEnd(counter, registry)
		s.end.Store(e)
	}
	e.target.Start()
	return e.done
}

func (s *SubConn) newEnd(counter *traffic.Counter, registry *loads.Registry) *end {
	e := &end{counter: counter, registry: registry, place: registry.At(s.addr)}
	e.target = e.place.Target()
	e.done = func(info balancer.DoneInfo) {
		counter.End()
		e.target.End(info)
		s.health.Count(info)
	}
	return e
}
