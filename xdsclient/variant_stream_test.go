package xdsclient

import (
	"context"
	"io"
	"net"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

// variantServer serves the twins of the discovery messages under the published name,
// so that what it has is what any server of TP2 gets.
type variantServer struct {
	discoverypb.UnimplementedAggregatedDiscoveryServiceServer
	streams chan variantStream
}

// variantStream is a stream of either protocol.
type variantStream struct {
	delta  bool
	stream grpc.ServerStream
	end    chan struct{}
}

func (s *variantServer) StreamAggregatedResources(stream discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.serve(variantStream{false, stream, make(chan struct{})})
}

func (s *variantServer) DeltaAggregatedResources(stream discoverypb.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.serve(variantStream{true, stream, make(chan struct{})})
}

func (s *variantServer) serve(v variantStream) error {
	select {
	case s.streams <- v:
	case <-v.stream.Context().Done():
		return nil
	}
	select {
	case <-v.end:
		return status.Error(codes.Unavailable, "off for lunch")
	case <-v.stream.Context().Done():
		return nil
	}
}

// request returns the locators that the next request names, and the message.
func (v variantStream) request(t *testing.T) ([]*discoverypb.ResourceLocator, proto.Message) {
	t.Helper()
	if v.delta {
		m := new(discoverypb.DeltaDiscoveryRequest)
		if err := v.stream.RecvMsg(m); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		return m.GetResourceLocatorsSubscribe(), m
	}
	m := new(discoverypb.DiscoveryRequest)
	if err := v.stream.RecvMsg(m); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return m.GetResourceLocators(), m
}

func (v variantStream) expect(t *testing.T, want ...string) proto.Message {
	t.Helper()
	locators, m := v.request(t)
	var got []string
	for _, l := range locators {
		got = append(got, locatorText(l))
	}
	if len(got) != len(want) {
		t.Fatalf("the request names %q, want %q", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("the request names %q, want %q", got, want)
		}
	}
	return m
}

func (v variantStream) send(t *testing.T, typ *ResourceType, version string, parts ...func(*answer)) {
	t.Helper()
	r := &answer{TypeUrl: typ.TypeURL, SystemVersionInfo: version, Nonce: "n" + version}
	for _, p := range parts {
		p(r)
	}
	var m proto.Message = r
	if !v.delta {
		m = inSotW(t, r)
	}
	xdstest.NoError(t, v.stream.SendMsg(m))
}

// Over real streams: two watchers with different constraints on one name have
// different resources on one stream, before and after it breaks; one of them moves to
// other constraints in one request.
func TestVariantsOverAStream(t *testing.T) {
	t.Parallel()
	for _, delta := range []bool{false, true} {
		name, features := "SotW", []string{"dynamic_parameter_constraints"}
		if delta {
			name, features = "delta", append(features, "delta")
		}
		xdstest.Parallel(t, name, func(t *testing.T) {
			server, c := startVariantServer(t, features)
			types := newTestTypes()
			prod, moving := newEar(t), newEar(t)
			var stop func()
			c.Batch(func() {
				c.WatchLocator(types.clusters, "a", choose("env=prod"), prod)
				stop = c.WatchLocator(types.clusters, "a", choose("env=test"), moving)
			})
			s := <-server.streams
			s.expect(t, "a{env=prod}", "a{env=test}")
			s.send(t, types.clusters, "1", variantOf("a", "env=prod", "p"), variantOf("a", "env=test", "t"))
			prod.cluster("p")
			moving.cluster("t")
			s.request(t) // the ACK

			close(s.end)
			s = <-server.streams
			m := s.expect(t, "a{env=prod}", "a{env=test}")
			if delta {
				if versions := m.(*discoverypb.DeltaDiscoveryRequest).GetInitialResourceVersions(); len(versions) != 1 || versions["a"] != "" {
					t.Errorf("initial_resource_versions are %q, want an empty one for a", versions)
				}
			}
			s.send(t, types.clusters, "2", variantOf("a", "env=prod", "p"), variantOf("a", "env=test", "t2"))
			moving.cluster("t2")
			s.request(t)

			c.Batch(func() {
				c.WatchLocator(types.clusters, "a", choose("shard=0-5"), moving)
				stop()
			})
			if delta {
				m := s.expect(t, "a{shard in [0-5]}").(*discoverypb.DeltaDiscoveryRequest)
				if left := m.GetResourceLocatorsUnsubscribe(); len(left) != 1 || locatorText(left[0]) != "a{env=test}" || len(m.GetResourceNamesUnsubscribe()) != 0 {
					t.Errorf("unsubscribed from %v and %v, want from the locator only", left, m.GetResourceNamesUnsubscribe())
				}
			} else {
				s.expect(t, "a{env=prod}", "a{shard in [0-5]}")
			}
			s.send(t, types.clusters, "3", variantOf("a", "env=prod,shard=9", "p2"), variantOf("a", "env=other,shard=3", "3"))
			moving.cluster("3")
			prod.cluster("p2")
		})
	}
}

func startVariantServer(t *testing.T, features []string) (*variantServer, *XDSClient) {
	t.Helper()
	service := discoverypb.AggregatedDiscoveryService_ServiceDesc
	service.ServiceName = discoveryv3.AggregatedDiscoveryService_ServiceDesc.ServiceName
	s := &variantServer{streams: make(chan variantStream)}
	server, listener := grpc.NewServer(), bufconn.Listen(1<<20)
	server.RegisterService(&service, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	c, err := New(parseBootstrap(t, "passthrough:///variants", testutils.ServerFeatures(features...)),
		WithDialOptions(grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) })))
	xdstest.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s, c
}
