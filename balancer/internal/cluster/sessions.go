package cluster

import (
	"cmp"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/boundlog"
)

// minSweep is the minimum time between two sweeps of connections that no session uses any more
// (gRFC A75).
const minSweep = 5 * time.Second

var logger = boundlog.Component("dynxds")

// sessions finds the endpoints that RPCs ask for, in all priorities of the cluster (gRFCs A55,
// A61 and A75, "Changes in xds_override_host LB Policy").
type sessions struct {
	env      *tree.Env // of the cluster; has registry as Endpoints
	registry *conns.Registry

	// The rest is used on the loop.
	sweeper *tree.Timer
	closed  bool
}

// newSessions returns the sessions of the cluster that env is for, and sets env.Endpoints. publish replaces the channel's picker,
// so that RPCs that wait look again.
func newSessions(env *tree.Env, publish func()) *sessions {
	s := &sessions{env: env}
	post := func(f func()) func() {
		f = s.unlessClosed(f)
		return func() { env.Loop.Post(f) }
	}
	s.registry = conns.NewRegistry(&env.Setup, post(publish), post(s.startSweeper))
	env.Endpoints = s.registry
	return s
}

// unlessClosed returns a function for the loop that calls f unless s is closed.
func (s *sessions) unlessClosed(f func()) func() {
	return func() {
		if !s.closed {
			f()
		}
	}
}

func (s *sessions) close() {
	s.closed = true
	s.sweeper.Stop()
	s.registry.Close()
}

// connFor returns the connection for an RPC that asks for one of the addresses, or nil if the
// policies have to pick. wait says that the RPC has to wait for a connection. It takes no lock.
func (s *sessions) connFor(addresses []string) (sc *conns.Conn, wait bool) {
	sc, connect, wait := s.look(addresses)
	if connect != nil {
		connect.Use()
		if connect.Requested.CompareAndSwap(false, true) {
			s.env.Loop.PostFromPick(s.unlessClosed(func() { s.connect(connect) }))
		}
	}
	return sc, wait
}

// look is the picker of gRFC A75.
func (s *sessions) look(addresses []string) (sc *conns.Conn, connect *conns.Record, wait bool) {
	var idle, missing *conns.Record
	for _, a := range addresses {
		h := s.registry.Session(a)
		if h == nil || !h.Allowed() {
			continue
		}
		conn := h.Conn()
		if conn == nil {
			missing = cmp.Or(missing, h)
			continue
		}
		switch conn.State() {
		case connectivity.Ready:
			return conn, nil, false
		case connectivity.Connecting:
			wait = true
		case connectivity.Idle:
			idle = cmp.Or(idle, h)
		}
	}
	switch {
	case idle != nil:
		return nil, idle, true
	case wait:
		return nil, nil, true
	default:
		return nil, missing, missing != nil
	}
}

// connect is called for a pick, perhaps some time after it.
func (s *sessions) connect(h *conns.Record) {
	h.Requested.Store(false)
	if s.registry.Session(h.Address) != h {
		return
	}
	switch conn := h.Conn(); {
	case conn != nil && conn.State() == connectivity.Idle:
		conn.Connect()
	case conn == nil:
		if s.registry.OpenForSessions(h.Address) == nil { // Otherwise the channel is being closed.
			s.startSweeper()
		}
	}
}

// startSweeper is called when a connection is kept that no policy has.
func (s *sessions) startSweeper() {
	if s.sweeper == nil {
		s.sweeper = s.env.Loop.After(minSweep, s.sweep)
	}
}

func (s *sessions) sweep() {
	s.sweeper = nil
	if wait, more := s.registry.Sweep(); more {
		s.sweeper = s.env.Loop.After(max(wait, minSweep), s.sweep)
	}
}

// keepsSessions reports whether sessions may use an endpoint, if nothing else may.
func keepsSessions(c *Config) bool {
	for i := range c.Endpoints.Localities {
		for _, e := range c.Endpoints.Localities[i].Endpoints {
			if c.Cluster.Sessions.Statuses.Has(e.Health) {
				return true
			}
		}
	}
	return false
}
