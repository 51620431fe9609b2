package controlplane

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	dpdspb "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
)

// errClosed ends streams when the server closes. Clients reconnect to another server, or to this
// one after a restart.
var errClosed = status.Error(codes.Unavailable, "the xDS server is shutting down")

// Server is the Aggregated Discovery Service, and DPDS, over a [Store]. It is
// safe for concurrent use.
type Server struct {
	store *Store
	opts  Options

	// closing ends every stream when it is done, which is decided under mu.
	closing context.Context
	close   context.CancelFunc
	// running counts the goroutines of all streams.
	running sync.WaitGroup
	// waits are the calls of Await in progress, as keys of type chan struct{}.
	waits  sync.Map
	quotas *quotas

	mu      sync.Mutex
	lastID  uint64
	streams map[uint64]*stream
}

// NewServer returns a server over store. Several servers may share one.
func NewServer(store *Store, opts Options) *Server {
	opts = opts.withDefaults()
	s := &Server{store: store, opts: opts, quotas: newQuotas(opts.MaxStreams, opts.OnRefused), streams: map[uint64]*stream{}}
	s.closing, s.close = context.WithCancel(context.Background())
	return s
}

// Register adds envoy.service.discovery.v3.AggregatedDiscoveryService, with both
// its methods, and envoy.service.dynamic_parameters.v3.DynamicParametersDiscoveryService
// (DPDS), with all three, to a gRPC server. Clients may send long lists of names:
// consider grpc.MaxRecvMsgSize.
//
// Requests are inspected before they are decoded, so that interceptors and stats handlers see messages that have the
// methods of the requests, but are not of their types. These are m.ProtoReflect().Interface().
func (s *Server) Register(r grpc.ServiceRegistrar) {
	// The messages are copies of the published ones under other names; the services have the
	// published names.
	aggregated := discoverypb.AggregatedDiscoveryService_ServiceDesc
	aggregated.ServiceName = "envoy.service.discovery.v3.AggregatedDiscoveryService"
	r.RegisterService(&aggregated, &ads{server: s})
	dynamic := dpdspb.DynamicParametersDiscoveryService_ServiceDesc
	dynamic.ServiceName = "envoy.service.dynamic_parameters.v3.DynamicParametersDiscoveryService"
	r.RegisterService(&dynamic, &dpds{server: s})
}

// Close ends all streams, and every later one, with UNAVAILABLE, and waits for their goroutines.
// It does not stop the grpc.Server: call Close first, then its GracefulStop, which waits for
// streams. Close is idempotent.
func (s *Server) Close() {
	s.mu.Lock()
	s.close()
	s.mu.Unlock()
	s.running.Wait()
}

// ads keeps the service's methods out of the API of Server.
type ads struct {
	discoverypb.UnimplementedAggregatedDiscoveryServiceServer
	server *Server
}

func (a *ads) StreamAggregatedResources(wire discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return a.server.serveSotW(wire, "")
}

func (a *ads) DeltaAggregatedResources(wire discoverypb.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return a.server.serveDelta(wire, "")
}

// serveSotW runs a SotW stream, of one type unless onlyType is empty.
func (s *Server) serveSotW(wire grpc.BidiStreamingServer[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse], onlyType string) error {
	st, err := s.begin(wire.Context(), ProtocolSotW, onlyType)
	if err != nil {
		return err
	}
	defer s.end(st)
	return exchange(st, &sotw{stream: st}, wire, &s.running, s.closing.Done())
}

// serveDelta is serveSotW for delta.
func (s *Server) serveDelta(wire grpc.BidiStreamingServer[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse], onlyType string) error {
	st, err := s.begin(wire.Context(), ProtocolDelta, onlyType)
	if err != nil {
		return err
	}
	defer s.end(st)
	return exchange(st, &delta{st}, wire, &s.running, s.closing.Done())
}

// begin adds a stream, unless the server is closed or its peers have too many.
func (s *Server) begin(ctx context.Context, protocol Protocol, onlyType string) (*stream, error) {
	from, _ := peer.FromContext(ctx)
	usage, err := s.quotas.open(from, s.opts.MaxSubscriptions)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil {
		usage.close()
		return nil, errClosed
	}
	s.running.Add(1)
	s.lastID++
	st := newStream(ctx, s.lastID, protocol, s.store, &s.opts, usage)
	st.onlyType, st.waits = onlyType, &s.waits
	s.streams[st.id] = st
	return st, nil
}

func (s *Server) end(st *stream) {
	s.mu.Lock()
	delete(s.streams, st.id)
	s.mu.Unlock()
	st.end().release(st)
	st.recheck.end()
	st.usage.close()
	st.noteChange()
	s.running.Done()
}
