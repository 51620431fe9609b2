package leaf

import (
	"errors"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/endpoints"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// SubConn is a SubConn as the policy sees it. When the policy shuts it down it
// reports nothing more, but it stays open for a moment (package conns), or for as
// long as sessions use it (package endpoints).
//
// Picks of the leaf return the SubConn itself; the cluster's picker calls Begin and gives
// gRPC its own SubConn, which Unwrap returns.
type SubConn struct {
	// What RPCs read comes first, in one cache line.
	*conns.Conn
	end      atomic.Pointer[end]
	endpoint endpoints.Conn

	env  *tree.Env
	conn *clientConn // nil: opened for sessions, not by a policy
	kept atomic.Bool // for sessions, by env.Endpoints: the policy has no more use for it
	// health is a Health.
	health atomic.Int32
	// locality is the answer of the last call of LocalityIn, nil before the first.
	locality atomic.Pointer[localityCache]

	// mu guards what follows. It is not held during any call.
	mu sync.Mutex
	// listener is called with the health of the SubConn while that is READY.
	listener func(balancer.SubConnState)
	// registration counts the listeners: reports to old ones are dropped.
	registration int
	// reported is what gRPC last reported to listener, IDLE if nothing.
	reported balancer.SubConnState
	// check is the health check, nil if there is none, and checked the health by it.
	check   *healthCheck
	checked balancer.SubConnState
}

// OpenForSessions connects to an address for the sessions of a cluster, not for a policy.
// env.Endpoints decides how long the connection is kept.
func OpenForSessions(env *tree.Env, address string) error {
	s := &SubConn{env: env}
	hostname, proxy := env.Endpoints.Endpoint(address)
	err := s.open([]resolver.Address{env.Bundle.Address(address, hostname, proxy)}, balancer.NewSubConnOptions{
		StateListener: s.endpoint.Report,
	})
	if err != nil {
		return err
	}
	if !s.endpoint.Own() {
		s.Release()
		return nil
	}
	s.Connect()
	return nil
}

// open is the one place where leaves and sessions open connections: what all connections
// of a cluster have in common is added to opts here.
func (s *SubConn) open(addresses []resolver.Address, opts balancer.NewSubConnOptions) (err error) {
	first := ""
	if len(addresses) > 0 {
		first = addresses[0].Addr
	}
	s.endpoint = s.env.Endpoints.NewConn(s, first, len(addresses) > 1)
	if s.env.Bundle != nil {
		opts = grpcbridge.WithCredentials(opts, s.env.Bundle)
	}
	s.Conn, err = s.env.Conns.Open(s.env.Cluster, s.env.Bundle.Dial(addresses), s.labels(), opts)
	return err
}

// labels returns the labels of the connection's metrics (gRFC A94), none if they are not recorded.
func (s *SubConn) labels() grpcbridge.SubchannelLabels {
	if !s.env.Recorded {
		return grpcbridge.SubchannelLabels{}
	}
	return grpcbridge.SubchannelLabels{BackendService: s.env.Cluster, Locality: s.place().Name(s.Address())}
}

// place returns where the endpoint is, or nil. Connections for sessions do not belong, or no
// longer, to a locality's part of the tree.
func (s *SubConn) place() *tree.Locality {
	if s.env.Locality != nil && !s.kept.Load() {
		return s.env.Locality
	}
	if session := s.env.Endpoints.Session(s.Address()); session != nil {
		return tree.NewLocality(session.Endpoint().Locality)
	}
	return nil
}

// UpdateAddresses implements balancer.SubConn.
func (s *SubConn) UpdateAddresses(addresses []resolver.Address) {
	s.Conn.UpdateAddresses(s.env.Bundle.Dial(addresses))
}

// Unwrap returns gRPC's own SubConn.
func (s *SubConn) Unwrap() balancer.SubConn { return s.SubConn }

// Address returns the address that the connection leads to, the first of several.
func (s *SubConn) Address() string { return s.endpoint.Address() }

// Hostname returns the hostname of the endpoint, or "".
func (s *SubConn) Hostname() string { return s.endpoint.Hostname() }

// LocalityLabels returns the telemetry label of the endpoint's locality, or nil.
func (s *SubConn) LocalityLabels() map[string]string { return s.place().Labels(s.Address()) }

// Session returns what sessions know of the endpoint, or nil.
func (s *SubConn) Session() *endpoints.Session { return s.endpoint.Session() }

// Ejected reports whether the endpoint is ejected by outlier detection.
func (s *SubConn) Ejected() bool { return s.endpoint.Ejected() }

// Shutdown implements balancer.SubConn.
func (s *SubConn) Shutdown() {
	if s.conn.forget(s) {
		s.retire()
	}
}

// retire ends the policy's use of the SubConn.
func (s *SubConn) retire() {
	s.listen(nil)
	if s.endpoint.Abandon() {
		s.kept.Store(true)
	} else {
		s.Release()
	}
}

// Release implements endpoints.SubConn: it gives the connection back, for others to reuse
// in the next moment.
func (s *SubConn) Release() { s.Conn.Shutdown() }

// RegisterHealthListener implements balancer.SubConn. While the endpoint is ejected, the
// listener gets TRANSIENT_FAILURE (gRFC A61, "Generic Health Reporting Mechanism").
func (s *SubConn) RegisterHealthListener(listener func(balancer.SubConnState)) {
	n := s.listen(listener)
	if listener == nil {
		s.SubConn.RegisterHealthListener(nil)
		return
	}
	s.checkHealth(balancer.SubConnState{ConnectivityState: connectivity.Connecting})
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

// listen sets the listener, nil for none.
func (s *SubConn) listen(listener func(balancer.SubConnState)) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registration++
	s.listener, s.reported = listener, balancer.SubConnState{}
	s.stopCheckLocked()
	return s.registration
}

// EjectionChanged implements endpoints.SubConn.
func (s *SubConn) EjectionChanged() { s.reportHealth() }

// reportHealth calls the listener with what gRPC last reported, with the result of the health check,
// or with the ejection.
func (s *SubConn) reportHealth() {
	if s.conn == nil {
		return
	}
	s.conn.policy.calls.Lock()
	defer s.conn.policy.calls.Unlock()
	s.mu.Lock()
	listener, state := s.listener, s.reported
	if s.check != nil && state.ConnectivityState == connectivity.Ready {
		state = s.checked
	}
	s.mu.Unlock()
	if listener == nil || s.conn.policy.policy == nil || state.ConnectivityState == connectivity.Idle {
		return
	}
	if s.Ejected() {
		state = balancer.SubConnState{ConnectivityState: connectivity.TransientFailure, ConnectionError: errEjected}
	}
	listener(state)
}

var errEjected = errors.New("the endpoint is ejected: it failed more RPCs than outlier_detection allows")
