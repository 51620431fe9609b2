package leaf

import (
	"errors"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/health"
	"github.com/dynxds/dynxds/balancer/internal/hosts"
	"github.com/dynxds/dynxds/balancer/internal/tree"
)

// SubConn is a SubConn as the policy sees it. When the policy shuts it down it
// reports nothing more, but it stays open for a moment (package conns), or for as
// long as sessions use it (package hosts).
//
// Picks of the leaf return it as it is; the cluster's picker calls Begin and gives
// gRPC its own SubConn back with Unwrap.
type SubConn struct {
	*conns.Conn
	env  *tree.Env
	conn *clientConn // nil: no policy's
	// addr is where it connects to; the first one, if there are several.
	addr string
	end  atomic.Pointer[end]
	// health is nil if nobody wants to know how RPCs on the SubConn end, host if
	// nobody asks for its endpoint.
	health *health.Conn
	host   *hosts.Conn

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

// Open connects to an address for the sessions of a cluster and not for a policy.
// env has Hosts, which decides how long the connection is kept.
func Open(env *tree.Env, address string) error {
	s := &SubConn{env: env, addr: address}
	var err error
	s.Conn, err = env.Conns.Open([]resolver.Address{{Addr: address}}, balancer.NewSubConnOptions{
		StateListener: func(state balancer.SubConnState) { s.host.Report(state.ConnectivityState) },
	})
	if err != nil {
		return err
	}
	s.register()
	if !s.host.Own() {
		s.Release()
		return nil
	}
	s.Connect()
	return nil
}

// register tells those who ask for endpoints by their addresses of the SubConn.
func (s *SubConn) register() {
	if s.env.Health != nil {
		s.health = s.env.Health.Connect(s.addr, s.reportHealth)
	}
	if s.env.Hosts != nil {
		s.host = s.env.Hosts.NewConn(s.addr, s)
	}
}

// Address returns the address of the endpoint that the SubConn is a connection to.
func (s *SubConn) Address() string { return s.addr }

// Unwrap returns gRPC's own SubConn.
func (s *SubConn) Unwrap() balancer.SubConn { return s.SubConn }

// Host returns the host that the SubConn leads to, nil if none is known.
func (s *SubConn) Host() *hosts.Host { return s.host.Host() }

// Ejected reports whether the endpoint is ejected as an outlier.
func (s *SubConn) Ejected() bool { return s.health.Ejected() }

// Shutdown implements balancer.SubConn.
func (s *SubConn) Shutdown() {
	if s.conn.forget(s) {
		s.retire()
	}
}

// retire ends what the policy has to do with the SubConn.
func (s *SubConn) retire() {
	s.listen(nil)
	if !s.host.Abandon() {
		s.Release()
	}
}

// Release gives the connection up, for others to take up in the next moment.
func (s *SubConn) Release() {
	s.health.Close()
	s.Conn.Shutdown()
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
	if s.conn == nil {
		return
	}
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
