package controlplane

import (
	"sync"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	dpdspb "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// errClosed ends streams when the server closes. Clients come back, to another
// server or to this one's successor.
var errClosed = status.Error(codes.Unavailable, "the xDS server is shutting down")

// errNoDelta makes clients fall back to SotW.
var errNoDelta = status.Error(codes.Unimplemented, "the xDS server does not offer DeltaAggregatedResources; use StreamAggregatedResources")

// Defaults of the limits per stream.
const (
	DefaultMaxSubscriptions = 200_000
	DefaultMaxNameBytes     = 32 << 20
	// DefaultMaxResponseSize is half of what a gRPC client takes by default.
	DefaultMaxResponseSize = 2 << 20
)

// Option changes how a [Server] behaves.
type Option func(*Server)

// WithMaxSubscriptions bounds how many names (each type counts as one more) a
// stream may subscribe to at a time. A stream that asks for more ends with
// RESOURCE_EXHAUSTED. The default is [DefaultMaxSubscriptions].
func WithMaxSubscriptions(n int) Option { return func(s *Server) { s.limits.names = n } }

// WithMaxNameBytes bounds the size of what a stream makes the server remember:
// its node, its types' URLs, the names and constraints it subscribes with, and
// what a delta client says it has of a wildcard or a glob (initial_resource_versions). A
// stream that exceeds it ends with RESOURCE_EXHAUSTED. The default is
// [DefaultMaxNameBytes].
func WithMaxNameBytes(n int) Option { return func(s *Server) { s.limits.bytes = n } }

// WithResourceWrapping makes SotW responses wrap each resource in an
// envoy.service.discovery.v3.Resource, with its name and version, for clients
// whose node announces the feature "xds.config.resource-in-sotw". Off by
// default: some clients announce less than they should, none suffers from bare
// resources.
func WithResourceWrapping() Option { return func(s *Server) { s.wrap = true } }

// WithMaxResponseSize makes delta responses of more than about n bytes several.
// A resource that is larger alone comes in a response of its own. SotW responses
// are not split: where they are complete, they cannot be. The default is
// [DefaultMaxResponseSize].
func WithMaxResponseSize(n int) Option { return func(s *Server) { s.maxResponse = n } }

// WithoutDelta refuses DeltaAggregatedResources with UNIMPLEMENTED, as a server
// that knows only SotW does.
func WithoutDelta() Option { return func(s *Server) { s.noDelta = true } }

// WithNotFoundErrors makes SotW streams tell of a subscribed name that does not
// exist, or does not exist any more, by a resource error NOT_FOUND (xRFC TP3),
// so that clients need not wait for a timeout. It counts for names of every
// type; a wildcard subscription has none that could be missing. Delta streams say
// the same by removed_resources, with or without it. Off by default.
func WithNotFoundErrors() Option { return func(s *Server) { s.tellAbsence = true } }

// WithNodeConstraints chooses variants for clients that send no constraints (xRFC
// TP2, "Migrating From Node Metadata"): of is asked once for each stream, and its
// constraints apply to every type that the client does not subscribe to by
// locators. Without it such a client has no constraints. The node is the one of
// the stream's first request, nil if that had none. of is called without any lock
// held, by several goroutines at a time; see [Server.RefreshNodeConstraints].
//
// A client that sends locators has said what it wants, and of has no say in it;
// for such a client there is DPDS, for which the same function may serve
// ([Tx.SetDPDS]).
func WithNodeConstraints(of func(node *corepb.Node) dynparam.ByType) Option {
	return func(s *Server) { s.constraints.of = of }
}

// WithNACKHandler has a function told of each rejection of a response by a client,
// for a log or an alert. It is called by the goroutine that reads the client's
// requests, several of which there are, without any lock held, and the client's
// next request waits for it.
func WithNACKHandler(f func(Rejection)) Option { return func(s *Server) { s.rejected = f } }

// Server is the Aggregated Discovery Service, and DPDS, over a [Store]. It is
// safe for concurrent use.
type Server struct {
	store       *Store
	constraints nodeConstraints
	limits      limits
	maxResponse int
	wrap        bool
	noDelta     bool
	tellAbsence bool
	// removalDelay is for the deletion of what clients are subscribed to.
	removalDelay time.Duration
	rejected     func(Rejection)

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
func NewServer(store *Store, opts ...Option) *Server {
	s := &Server{
		store:       store,
		limits:      limits{names: DefaultMaxSubscriptions, bytes: DefaultMaxNameBytes},
		maxResponse: DefaultMaxResponseSize,
		stop:        make(chan struct{}),
		streams:     map[uint64]*stream{},

		removalDelay: DefaultRemovalDelay,
	}
	for _, opt := range opts {
		opt(s)
	}
	return s
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
	return serve(s, ProtocolSotW, wire, func(st *stream) protocolVariant[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse] {
		return newSotW(st, s.wrap, s.tellAbsence)
	})
}

func (a *ads) DeltaAggregatedResources(wire discoverypb.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	s := a.server
	if s.noDelta {
		return errNoDelta
	}
	return serve(s, ProtocolDelta, wire, func(st *stream) protocolVariant[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse] {
		return newDelta(st, s.maxResponse)
	})
}

// serve runs one stream from its begin to its end.
func serve[Req, Resp any](
	s *Server,
	protocol Protocol,
	wire grpc.BidiStreamingServer[Req, Resp],
	speak func(*stream) protocolVariant[Req, Resp],
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
	st := newStream(s.lastID, protocol, s.store, &s.constraints, s.limits, from)
	st.rejected, st.waits = s.rejected, &s.waits
	st.withdrawals.delay = s.removalDelay
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
