package testutils

import (
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	dpdspb "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

var errStopped = status.Error(codes.Unavailable, "the server stops")

// service is ADS and DPDS over a store.
type service struct {
	store *store
	// running counts the goroutines of streams.
	running sync.WaitGroup

	mu      sync.Mutex
	streams []*stream
	// changed is closed and replaced when a stream begins, ends, or has a request or a response.
	changed chan struct{}
	// stop ends the streams of a run when it is closed; stopped says that it is.
	stop    chan struct{}
	stopped bool
}

func newService(store *store) *service {
	return &service{store: store, changed: make(chan struct{}), stop: make(chan struct{})}
}

// register begins a run of the service on a gRPC server.
func (s *service) register(server *grpc.Server) {
	s.mu.Lock()
	s.stop, s.stopped = make(chan struct{}), false
	s.mu.Unlock()
	// The messages are copies of the published ones under other names; the services have the published names.
	aggregated := discoverypb.AggregatedDiscoveryService_ServiceDesc
	aggregated.ServiceName = "envoy.service.discovery.v3.AggregatedDiscoveryService"
	server.RegisterService(&aggregated, &ads{service: s})
	dynamic := dpdspb.DynamicParametersDiscoveryService_ServiceDesc
	dynamic.ServiceName = "envoy.service.dynamic_parameters.v3.DynamicParametersDiscoveryService"
	server.RegisterService(&dynamic, &dpds{service: s})
}

// endStreams ends the run: all streams, and every later one, end with UNAVAILABLE. It waits for them.
func (s *service) endStreams() {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stop)
	}
	s.mu.Unlock()
	s.running.Wait()
}

// begin adds a stream, and returns the channel that is closed when it has to end.
func (s *service) begin(st *stream) (stop <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, errStopped
	}
	s.running.Add(1)
	s.streams = append(s.streams, st)
	s.notifyLocked()
	st.store.mu.Lock()
	defer st.store.mu.Unlock()
	st.store.wakers[st.due] = struct{}{}
	return s.stop, nil
}

func (s *service) end(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running.Done()
	s.streams = slices.DeleteFunc(s.streams, func(other *stream) bool { return other == st })
	s.notifyLocked()
	st.store.mu.Lock()
	defer st.store.mu.Unlock()
	delete(st.store.wakers, st.due)
}

// notify makes Await look again.
func (s *service) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notifyLocked()
}

func (s *service) notifyLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *service) serveSotW(wire grpc.BidiStreamingServer[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse], onlyType string) error {
	st := newStream(s, false, onlyType)
	return serve(s, st, wire, st.sotwRequest, st.sotwResponses)
}

func (s *service) serveDelta(wire grpc.BidiStreamingServer[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse], onlyType string) error {
	st := newStream(s, true, onlyType)
	return serve(s, st, wire, st.deltaRequest, st.deltaResponses)
}

// ads is the Aggregated Discovery Service.
type ads struct {
	discoverypb.UnimplementedAggregatedDiscoveryServiceServer
	service *service
}

func (a *ads) StreamAggregatedResources(wire discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return a.service.serveSotW(wire, "")
}

func (a *ads) DeltaAggregatedResources(wire discoverypb.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return a.service.serveDelta(wire, "")
}

// dpds is the Dynamic Parameter Discovery Service (TP2, "Server-Specified Constraints").
type dpds struct {
	dpdspb.UnimplementedDynamicParametersDiscoveryServiceServer
	service *service
}

func (d *dpds) StreamDynamicParameterConstraints(wire dpdspb.DynamicParametersDiscoveryService_StreamDynamicParameterConstraintsServer) error {
	return d.service.serveSotW(wire, dynparam.MapTypeURL)
}

func (d *dpds) DeltaDynamicParameterConstraints(wire dpdspb.DynamicParametersDiscoveryService_DeltaDynamicParameterConstraintsServer) error {
	return d.service.serveDelta(wire, dynparam.MapTypeURL)
}
