package cmdtest

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// Stream is an ADS stream on which the test itself sends each request. Its messages have the fields of
// xRFC TP2; other peers ignore these.
type Stream[Request, Response any] struct {
	t      testing.TB
	stream grpc.BidiStreamingClient[Request, Response]
	// Cancel ends the stream.
	Cancel context.CancelFunc
}

// Send sends a request.
func (s *Stream[Request, Response]) Send(r *Request) {
	s.t.Helper()
	xdstest.NoError(s.t, s.stream.Send(r))
}

// Recv returns the next response.
func (s *Stream[Request, Response]) Recv() *Response {
	s.t.Helper()
	response, err := s.stream.Recv()
	xdstest.NoError(s.t, err)
	return response
}

// Err returns the error with which the stream ends, the responses before it left out.
func (s *Stream[Request, Response]) Err() error {
	for {
		if _, err := s.stream.Recv(); err != nil {
			return err
		}
	}
}

// Exchange sends a request, and returns the next response.
func (s *Stream[Request, Response]) Exchange(r *Request) *Response {
	s.t.Helper()
	s.Send(r)
	return s.Recv()
}

// SotW opens a stream of the state-of-the-world protocol.
func SotW(t testing.TB, conn *grpc.ClientConn) *Stream[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse] {
	t.Helper()
	return open[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse](t, conn, "StreamAggregatedResources")
}

// Delta opens a stream of the delta protocol.
func Delta(t testing.TB, conn *grpc.ClientConn) *Stream[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse] {
	t.Helper()
	return open[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse](t, conn, "DeltaAggregatedResources")
}

func open[Request, Response any](t testing.TB, conn *grpc.ClientConn, method string) *Stream[Request, Response] {
	t.Helper()
	// A test may wait for several things, as long as testutils.Context each, while a stream is open.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/"+method)
	xdstest.NoError(t, err)
	return &Stream[Request, Response]{t, &grpc.GenericClientStream[Request, Response]{ClientStream: stream}, cancel}
}
