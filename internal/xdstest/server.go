// Package xdstest extends package testutils for the tests of this module: a control plane that
// records its requests and injects faults (Server), backends on several addresses (Forward), a
// log that tests read (Log), and the checks that every test makes (NoError, Equal).
//
// Nothing here sleeps. A test waits for the event, under a context: Recorder.Wait for a
// request of the client, Log.Wait for a line.
package xdstest

import (
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/testutils"
)

const (
	adsMethods  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
	deltaMethod = adsMethods + "DeltaAggregatedResources"

	dpdsMethods     = "/envoy.service.dynamic_parameters.v3.DynamicParametersDiscoveryService/"
	dpdsDeltaMethod = dpdsMethods + "DeltaDynamicParameterConstraints"
)

// Server is a control plane that records requests (Recorder) and injects faults (Faults). Both apply to
// ADS and DPDS streams, and survive Stop and Restart. It is safe for concurrent use.
type Server struct {
	*testutils.FakeServer
	*Recorder
	*Faults
}

// StartServer starts a Server that is closed when the test ends.
func StartServer(t testing.TB, opts ...testutils.FakeServerOption) *Server {
	t.Helper()
	s := &Server{Recorder: newRecorder(), Faults: newFaults()}
	between := testutils.GRPCOptions(grpc.ChainStreamInterceptor(s.intercept))
	s.FakeServer = testutils.StartFakeServer(t, append([]testutils.FakeServerOption{between}, opts...)...)
	return s
}

// Clients returns the status of the present streams; none while the control plane is stopped.
func (s *Server) Clients() []controlplane.ClientStatus {
	if control := s.Control(); control != nil {
		return control.Clients()
	}
	return nil
}

// AmbiguousChoices returns the count of [controlplane.Server.AmbiguousChoices]; zero while
// the control plane is stopped.
func (s *Server) AmbiguousChoices() uint64 {
	if control := s.Control(); control != nil {
		return control.AmbiguousChoices()
	}
	return 0
}

// intercept runs the handler of a stream until BreakStreams. gRPC ends the stream when intercept returns,
// which ends the handler too; controlplane.Server.Close waits for it.
func (s *Server) intercept(srv any, wire grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	method := info.FullMethod
	if !strings.HasPrefix(method, adsMethods) && !strings.HasPrefix(method, dpdsMethods) {
		return handler(srv, wire)
	}
	st, err := s.begin(method, wire, s.Recorder)
	s.began(err == nil)
	if err != nil {
		return err
	}
	defer s.ended()
	defer s.end(st)
	ended := make(chan error, 1)
	go func() { ended <- handler(srv, st) }()
	select {
	case err := <-ended:
		return err
	case err := <-st.broken:
		return err
	}
}
