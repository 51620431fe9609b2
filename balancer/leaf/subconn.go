package leaf

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/traffic"
)

// SubConn is a SubConn as the policy sees it. When the policy shuts it down it
// reports nothing more, but it stays open for Env.Linger.
//
// Picks of the leaf return it as it is; the cluster's picker calls Finish and
// gives gRPC its own SubConn back with Unwrap.
type SubConn struct {
	balancer.SubConn
	conn *clientConn
	end  atomic.Pointer[end]
}

// Unwrap returns gRPC's own SubConn.
func (s *SubConn) Unwrap() balancer.SubConn { return s.SubConn }

// Shutdown implements balancer.SubConn.
func (s *SubConn) Shutdown() {
	if s.conn.forget(s) {
		s.retire()
	}
}

// retire has gRPC shut the SubConn down in a while. If the whole tree is closed
// before that, gRPC does it by itself.
func (s *SubConn) retire() {
	env := s.conn.env
	if env.Linger == 0 || env.Closing.Load() {
		s.SubConn.Shutdown()
		return
	}
	env.Loop.Post(func() { env.Loop.After(env.Linger, s.SubConn.Shutdown) })
}

// end is what is done when an RPC on the SubConn ends. It is made once for a
// Counter and kept, so that RPCs do not each allocate one.
type end struct {
	counter *traffic.Counter
	done    func(balancer.DoneInfo)
}

// Finish returns what gRPC is to call when an RPC that counter has counted ends
// on the SubConn.
func (s *SubConn) Finish(counter *traffic.Counter) func(balancer.DoneInfo) {
	e := s.end.Load()
	if e == nil || e.counter != counter {
		e = &end{counter: counter, done: func(balancer.DoneInfo) { counter.End() }}
		s.end.Store(e)
	}
	return e.done
}
