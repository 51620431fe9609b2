package controlplane_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// The methods are called without the generated client, whose service has another name.
const (
	adsService  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
	dpdsService = "/envoy.service.dynamic_parameters.v3.DynamicParametersDiscoveryService/"
)

func openTwin[Req, Resp any](conn *grpc.ClientConn, method string) func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[Req, Resp], error) {
	return func(ctx context.Context, opts ...grpc.CallOption) (grpc.BidiStreamingClient[Req, Resp], error) {
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, opts...)
		return &grpc.GenericClientStream[Req, Resp]{ClientStream: stream}, err
	}
}

// twinSotW and twinDelta are streams of our own messages, which have xRFC TP2's fields.
type (
	twinSotW  = rawClient[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse]
	twinDelta = rawClient[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse]
)

func (s *testServer) openTwinSotW(t testing.TB) *twinSotW {
	return newRawClient(t, openTwin[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse](s.conn, adsService+"StreamAggregatedResources"))
}

func (s *testServer) openTwinDelta(t testing.TB) *twinDelta {
	return newRawClient(t, openTwin[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse](s.conn, adsService+"DeltaAggregatedResources"))
}

// variant is a resource whose content is text.
func variant(typeURL, text string) *anypb.Any {
	return &anypb.Any{TypeUrl: typeURL, Value: []byte(text)}
}

// parameters is for pairs of keys and values.
func parameters(pairs ...string) map[string]string {
	p := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		p[pairs[i]] = pairs[i+1]
	}
	return p
}

// setVariant stores a variant whose text is content.
func (s *testServer) setVariant(t testing.TB, typeURL, name, content string, pairs ...string) {
	t.Helper()
	s.update(t, func(tx *controlplane.Tx) {
		tx.SetNamed(name, parameters(pairs...), variant(typeURL, content))
	})
}
