package cluster

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/grpclog"

	"github.com/dynxds/dynxds/balancer/internal/endpoints"
	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/balancer/internal/tree"
)

// minSweep is the least time between two looks for connections that no session
// uses any more (gRFC A75).
const minSweep = 5 * time.Second

var logger = grpclog.Component("dynxds")

// sessions finds the endpoints that RPCs ask for, over all priorities of the
// cluster (gRFCs A55, A61 and A75, "Changes in xds_override_host LB Policy"). It
// begins to know them when the first RPC asks: other clusters pay nothing.
type sessions struct {
	env      *tree.Env // of the cluster; has registry as Endpoints
	registry *endpoints.Registry
	publish  func() // replaces the channel's picker, so that RPCs that wait look again
	asked    atomic.Bool

	// The rest is for the loop.
	idleTimeout time.Duration
	sweeper     *tree.Timer
	closed      bool
}

// newSessions returns the sessions of the cluster that env is for, and sets
// env.Endpoints.
func newSessions(env *tree.Env, publish func()) *sessions {
	s := &sessions{env: env, publish: publish}
	s.registry = endpoints.New(s.post(publish), s.post(s.keep))
	env.Endpoints = s.registry
	return s
}

// post returns a function that has f run on the loop, unless s is closed by
// then.
func (s *sessions) post(f func()) func() {
	return func() {
		s.env.Loop.Post(func() {
			if !s.closed {
				f()
			}
		})
	}
}

func (s *sessions) close() {
	s.closed = true
	s.sweeper.Stop()
	s.registry.Close()
}

// ready reports whether the hosts can be asked for. If not, the pick has to wait:
// it is the first that asks.
func (s *sessions) ready() bool {
	if s.registry.Tracking() {
		return true
	}
	if s.asked.CompareAndSwap(false, true) {
		go s.post(s.track)()
	}
	return false
}

func (s *sessions) track() {
	s.registry.Track()
	s.publish()
}

// find returns the connection that an RPC is to go to which asks for one of the
// addresses; nil, if the policies are to pick. wait says that the connection may be
// there soon. It takes no lock.
func (s *sessions) find(addresses []string) (sc *leaf.SubConn, wait bool) {
	for {
		version := s.registry.Version()
		sc, connect, wait := s.look(addresses)
		if !wait {
			return sc, false
		}
		if !s.registry.Await(version) {
			continue
		}
		if connect != nil {
			connect.Use()
			if connect.Requested.CompareAndSwap(false, true) {
				// From a goroutine, as the loop's queue has a lock and a pick takes none.
				go s.post(func() { s.connect(connect) })()
			}
		}
		return nil, true
	}
}

// look is the picker of gRFC A75. A connection that is ejected as an outlier is
// as good as one that has failed (gRFC A50).
func (s *sessions) look(addresses []string) (sc *leaf.SubConn, connect *endpoints.Session, wait bool) {
	var idle, missing *endpoints.Session
	for _, a := range addresses {
		h := s.registry.Session(a)
		if h == nil || !h.Endpoint().Allowed || h.Unreachable.Load() {
			continue
		}
		conn, state := h.Conn()
		switch {
		case conn == nil:
			if missing == nil {
				missing = h
			}
		case state == connectivity.Ready:
			if sc := conn.(*leaf.SubConn); !sc.Ejected() {
				return sc, nil, false
			}
		case state == connectivity.Connecting:
			wait = true
		case state == connectivity.Idle && idle == nil:
			idle = h
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

// connect is what a pick asked for, maybe a while ago.
func (s *sessions) connect(h *endpoints.Session) {
	h.Requested.Store(false)
	if s.registry.Session(h.Address) != h {
		return
	}
	conn, state := h.Conn()
	switch {
	case conn != nil && state == connectivity.Idle:
		conn.Connect()
	case conn == nil:
		if err := leaf.OpenForSessions(s.env, h.Address); err != nil {
			logger.Warningf("no connection for sessions with %s can be made: %v", h.Address, err)
			h.Unreachable.Store(true)
			s.publish()
			return
		}
		s.keep()
	}
}

// keep is called when a connection is kept that no policy has.
func (s *sessions) keep() {
	if s.sweeper == nil {
		s.sweeper = s.env.Loop.After(max(s.idleTimeout, minSweep), s.sweep)
	}
}

func (s *sessions) sweep() {
	s.sweeper = nil
	if wait, more := s.registry.Sweep(); more {
		s.sweeper = s.env.Loop.After(max(wait, minSweep), s.sweep)
	}
}

// chosen is a picker that picks one connection.
type chosen struct{ sc *leaf.SubConn }

// Pick implements balancer.Picker.
func (c chosen) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{SubConn: c.sc}, nil
}

// keepsSessions reports whether RPCs of sessions have an endpoint to go to if
// all others have none.
func keepsSessions(c Config) bool {
	for i := range c.Endpoints.Localities {
		for _, e := range c.Endpoints.Localities[i].Endpoints {
			if c.Cluster.Sessions.Statuses.Has(e.Health) {
				return true
			}
		}
	}
	return false
}
