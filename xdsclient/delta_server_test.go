package xdsclient

import (
	"maps"
	"slices"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

// deltaStream is one incremental stream at the server.
type deltaStream struct {
	serverStream[discoverypb.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
}

func (s *script) DeltaAggregatedResources(wire discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	s.mu.Lock()
	s.begun = append(s.begun, time.Since(s.started))
	refuse, sotwOnly := s.refuse, s.sotwOnly
	s.mu.Unlock()
	if sotwOnly {
		return s.UnimplementedAggregatedDiscoveryServiceServer.DeltaAggregatedResources(wire)
	}
	if refuse != nil {
		return refuse
	}
	stream := &deltaStream{newServerStream[discoverypb.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse](s.t, wire)}
	s.deltas <- stream
	return stream.serve()
}

// delta lets clients connect and waits for the next incremental stream to begin,
// and for what the client has to say: an answer before the question counts for
// nothing.
func (s *script) delta() *deltaStream {
	s.t.Helper()
	s.open()
	select {
	case stream := <-s.deltas:
		synctest.Wait()
		return stream
	case <-time.After(patience):
		s.t.Fatal("no stream was opened")
		return nil
	}
}

// askedDelta waits for the next incremental stream to begin, and for its first request.
func (s *script) askedDelta() *deltaStream {
	s.t.Helper()
	stream := s.delta()
	stream.request()
	return stream
}

// deltaClient makes a client that speaks delta.
func (s *script) deltaClient(features ...string) *XDSClient {
	s.t.Helper()
	return s.client(testutils.ServerFeatures(append([]string{"delta"}, features...)...))
}

// deltaWant is what a test expects of an incremental request.
type deltaWant struct {
	typ         *ResourceType
	sub, unsub  []string
	initial     map[string]string
	nonce, nack string
	node        bool
}

// expect checks the next request.
func (s *deltaStream) expect(w deltaWant) {
	s.t.Helper()
	got := s.request()
	if got.GetTypeUrl() != w.typ.TypeURL || !slices.Equal(got.GetResourceNamesSubscribe(), w.sub) ||
		!slices.Equal(got.GetResourceNamesUnsubscribe(), w.unsub) || !maps.Equal(got.GetInitialResourceVersions(), w.initial) ||
		got.GetResponseNonce() != w.nonce || got.GetErrorDetail().GetMessage() != w.nack || (got.GetNode() != nil) != w.node {
		s.t.Fatalf("got request %v, want %+v", got, w)
	}
}

// part is something that an incremental response says.
type part func(*discoveryv3.DeltaDiscoveryResponse)

// has sends a resource of the given version.
func has(name, version string, m proto.Message, aliases ...string) part {
	return func(r *discoveryv3.DeltaDiscoveryResponse) {
		var a *anypb.Any
		if m != nil {
			var err error
			if a, err = anyOf(m); err != nil {
				panic(err)
			}
		}
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: name, Version: version, Resource: a, Aliases: aliases})
	}
}

func lacks(names ...string) part {
	return func(r *discoveryv3.DeltaDiscoveryResponse) {
		r.RemovedResources = append(r.RemovedResources, names...)
	}
}

// resourceError makes an error in place of a resource.
func resourceError(name string, code codes.Code, text string) *discoveryv3.ResourceError {
	return &discoveryv3.ResourceError{
		ResourceName: &discoveryv3.ResourceName{Name: name},
		ErrorDetail:  &statuspb.Status{Code: int32(code), Message: text},
	}
}

func fails(name string, code codes.Code, text string) part {
	return func(r *discoveryv3.DeltaDiscoveryResponse) {
		r.ResourceErrors = append(r.ResourceErrors, resourceError(name, code, text))
	}
}

func (s *deltaStream) send(typ *ResourceType, nonce string, parts ...part) {
	s.t.Helper()
	s.respond(deltaResponse(typ, nonce, parts...))
}

func deltaResponse(typ *ResourceType, nonce string, parts ...part) *discoveryv3.DeltaDiscoveryResponse {
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typ.TypeURL, SystemVersionInfo: "debug", Nonce: nonce}
	for _, p := range parts {
		p(r)
	}
	return r
}
