package controlplane

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	dpdspb "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
)

// errClosed ends streams when the server closes. Clients come back, to another
// server or to this one's successor.
var errClosed = status.Error(codes.Unavailable, "the xDS server is shutting down")

// errNoDelta makes clients fall back to SotW.
var errNoDelta = status.Error(codes.Unimplemented, "the xDS server does not offer DeltaAggregatedResources; use StreamAggregatedResources")

// Server is the Aggregated Discovery Service, and DPDS, over a [Store]. It is
// safe for concurrent use.
type Server struct {
	store       *Store
	opts        Options
	constraints nodeConstraints

	// stop ends every stream when it is closed.
	stop chan struct{}
	// running has every goroutine of every stream.
	running sync.WaitGroup
	waits   waits

	mu      sync.Mutex
	closed  bool
	lastID  uint64
	streams map[uint64]*stream
}

// NewServer returns a server over store. Several servers may share one.
func NewServer(store *Store, opts Options) *Server {
	return &Server{
		store:       store,
		opts:        opts.withDefaults(),
		constraints: nodeConstraints{of: opts.NodeConstraints},
		stop:        make(chan struct{}),
		streams:     map[uint64]*stream{},
	}
}

// Register adds envoy.service.discovery.v3.AggregatedDiscoveryService, with both
// its methods, and envoy.service.dynamic_parameters.v3.DynamicParametersDiscoveryService
// (DPDS), with all three, to a gRPC server. Clients may send long lists of names:
// consider grpc.MaxRecvMsgSize.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	// The messages are twins of the published ones under names of our own; the
	// services have the names that clients know.
	aggregated := discoverypb.AggregatedDiscoveryService_ServiceDesc
	aggregated.ServiceName = "envoy.service.discovery.v3.AggregatedDiscoveryService"
	r.RegisterService(&aggregated, &ads{server: s})
	dynamic := dpdspb.DynamicParametersDiscoveryService_ServiceDesc
	dynamic.ServiceName = "envoy.service.dynamic_parameters.v3.DynamicParametersDiscoveryService"
	r.RegisterService(&dynamic, &dpds{server: s})
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
	return serve(s, ProtocolSotW, wire, func(st *stream) protocolHandler[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse] {
		return newSotW(st, s.opts.WrapResources, s.opts.NotFoundErrors)
	})
}

func (a *ads) DeltaAggregatedResources(wire discoverypb.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	s := a.server
	if s.opts.NoDelta {
		return errNoDelta
	}
	return serve(s, ProtocolDelta, wire, func(st *stream) protocolHandler[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse] {
		return newDelta(st, s.opts.MaxResponseSize)
	})
}

// serve runs one stream from its begin to its end.
func serve[Req, Resp any](
	s *Server,
	protocol Protocol,
	wire grpc.BidiStreamingServer[Req, Resp],
	speak func(*stream) protocolHandler[Req, Resp],
) error {
	from, _ := peer.FromContext(wire.Context())
	st := s.begin(protocol, from)
	if st == nil {
		return errClosed
	}
	defer s.end(st)
	return exchange(st, speak(st), wire, &s.running, s.stop)
}

// begin adds a stream, unless the server is closed.
func (s *Server) begin(protocol Protocol, from *peer.Peer) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.running.Add(1)
	s.lastID++
	limits := limits{names: s.opts.MaxSubscriptions, bytes: s.opts.MaxNameBytes}
	st := newStream(s.lastID, protocol, s.store, &s.constraints, limits, from)
	st.rejected, st.waits = s.opts.OnNACK, &s.waits
	st.withdrawals.delay = s.opts.RemovalDelay
	s.streams[st.id] = st
	return st
}

func (s *Server) end(st *stream) {
	s.mu.Lock()
	delete(s.streams, st.id)
	s.mu.Unlock()
	s.store.release(st)
	s.waits.drop(st)
	s.running.Done()
}
