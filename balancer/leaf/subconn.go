package leaf

import (
	"errors"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/health"
)

// SubConn is a SubConn as the policy sees it. When the policy shuts it down it
// reports nothing more, but it stays open for Env.Linger.
//
// Picks of the leaf return it as it is; the cluster's picker calls Begin and gives
// gRPC its own SubConn back with Unwrap.
type SubConn struct {
	balancer.SubConn
	conn *clientConn
	// addr is where it connects to; the first one, if there are several.
	addr string
	end  atomic.Pointer[end]
	// health is nil if nobody wants to know how RPCs on the SubConn end.
	health *health.Conn

	// mu guards what follows and is held for no call.
	mu sync.Mutex
	// listener is told of the health of the SubConn while that is READY.
	listener func(balancer.SubConnState)
	// registration numbers the listeners: reports to an old one are dropped.
	registration int
	// reported is what gRPC last reported to listener; its state is IDLE if
	// there was no report.
	reported balancer.SubConnState
}

// Address returns the address of the endpoint that the SubConn is a connection to.
func (s *SubConn) Address() string { return s.addr }

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
	s.listen(nil)
	s.health.Close()
	env := s.conn.env
	if env.Linger == 0 || env.Ends() {
		s.SubConn.Shutdown()
		return
	}
	env.Loop.Post(func() { env.Loop.After(env.Linger, s.SubConn.Shutdown) })
}

// RegisterHealthListener implements balancer.SubConn. While the endpoint is
// ejected, the listener hears that it fails (gRFC A61, "Generic Health
// Reporting Mechanism").
func (s *SubConn) RegisterHealthListener(listener func(balancer.SubConnState)) {
	n := s.listen(listener)
	if listener == nil {
		s.SubConn.RegisterHealthListener(nil)
		return
	}
	s.SubConn.RegisterHealthListener(func(state balancer.SubConnState) {
		s.mu.Lock()
		current := n == s.registration
		if current {
			s.reported = state
		}
		s.mu.Unlock()
		if current {
			s.reportHealth()
		}
	})
}

// listen makes listener the one to tell; nil for none.
func (s *SubConn) listen(listener func(balancer.SubConnState)) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registration++
	s.listener, s.reported = listener, balancer.SubConnState{}
	return s.registration
}

// reportHealth tells the listener what gRPC last reported, or that the endpoint
// is ejected.
func (s *SubConn) reportHealth() {
	s.conn.policy.calls.Lock()
	defer s.conn.policy.calls.Unlock()
	s.mu.Lock()
	listener, state := s.listener, s.reported
	s.mu.Unlock()
	if listener == nil || s.conn.policy.policy == nil || state.ConnectivityState == connectivity.Idle {
		return
	}
	if s.health.Ejected() {
		state = balancer.SubConnState{ConnectivityState: connectivity.TransientFailure, ConnectionError: errEjected}
	}
	listener(state)
}

var errEjected = errors.New("the endpoint is ejected: it failed more RPCs than outlier_detection allows")
