package controlplane

import (
	"sync"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// errClosed ends streams when the server closes. Clients come back, to another
// server or to this one's successor.
var errClosed = status.Error(codes.Unavailable, "the xDS server is shutting down")

// Defaults of the limits per stream.
const (
	DefaultMaxSubscriptions = 200_000
	DefaultMaxNameBytes     = 32 << 20
)

// Option changes how a [Server] behaves.
type Option func(*Server)

// WithMaxSubscriptions bounds how many names (each type counts as one more) a
// stream may subscribe to at a time. A stream that asks for more ends with
// RESOURCE_EXHAUSTED. The default is [DefaultMaxSubscriptions].
func WithMaxSubscriptions(n int) Option { return func(s *Server) { s.limits.names = n } }

// WithMaxNameBytes bounds the size of what a stream makes the server remember:
// its node, its types' URLs, and the names it subscribes to. A stream that
// exceeds it ends with RESOURCE_EXHAUSTED. The default is
// [DefaultMaxNameBytes].
func WithMaxNameBytes(n int) Option { return func(s *Server) { s.limits.bytes = n } }

// WithResourceWrapping makes SotW responses wrap each resource in an
// envoy.service.discovery.v3.Resource, with its name and version, for clients
// whose node announces the feature "xds.config.resource-in-sotw". Off by
// default: some clients announce less than they should, none suffers from bare
// resources.
func WithResourceWrapping() Option { return func(s *Server) { s.wrap = true } }

// Server is the Aggregated Discovery Service over a [Store]. It is safe for
// concurrent use.
type Server struct {
	store  *Store
	limits limits
	wrap   bool

	// stop ends every stream when it is closed.
	stop chan struct{}
	// running has every goroutine of every stream.
	running sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	lastID  uint64
	streams map[uint64]*stream
}

// NewServer returns a server over store. Several servers may share one.
func NewServer(store *Store, opts ...Option) *Server {
	s := &Server{
		store:   store,
		limits:  limits{names: DefaultMaxSubscriptions, bytes: DefaultMaxNameBytes},
		stop:    make(chan struct{}),
		streams: map[uint64]*stream{},
	}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// Register adds envoy.service.discovery.v3.AggregatedDiscoveryService to a gRPC
// server. Clients may send long lists of names: consider grpc.MaxRecvMsgSize.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	discoverypb.RegisterAggregatedDiscoveryServiceServer(r, &ads{server: s})
}

// Close ends all streams, and from then on every new one, with UNAVAILABLE. It
// returns when their goroutines have ended. The grpc.Server stays as it is:
// close first, then call its GracefulStop, which waits for streams. Close is
// idempotent.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.stop)
	}
	s.mu.Unlock()
	s.running.Wait()
}

// ads is apart from Server so that the service's methods are no part of its
// API.
type ads struct {
	discoverypb.UnimplementedAggregatedDiscoveryServiceServer
	server *Server
}

func (a *ads) StreamAggregatedResources(wire discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	s := a.server
	from, _ := peer.FromContext(wire.Context())
	st := s.begin(from)
	if st == nil {
		return errClosed
	}
	defer s.end(st)
	p := newSotW(st, s.wrap)
	return exchange(st, wire, &s.running, s.stop, p.handle, p.push)
}

// begin adds a stream, unless the server is closed.
func (s *Server) begin(from *peer.Peer) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.running.Add(1)
	s.lastID++
	st := newStream(s.lastID, s.store, s.limits, from)
	s.streams[st.id] = st
	return st
}

func (s *Server) end(st *stream) {
	s.mu.Lock()
	delete(s.streams, st.id)
	s.mu.Unlock()
	s.store.release(st)
	s.running.Done()
}
