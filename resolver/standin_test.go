package resolver

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	estats "google.golang.org/grpc/experimental/stats"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// watcher waits until the resource is watched.
func (c *transport) watcher(t *testing.T, key string) (w xdsclient.Watcher) {
	t.Helper()
	c.Await(t, key+" to be watched", func() bool {
		if n := len(c.watches[key]); n > 0 {
			w = c.watches[key][n-1]
		}
		return w != nil
	})
	return w
}

// channelBuilder builds resolvers over a transport.
type channelBuilder struct {
	*transport
	*builder

	latestMu sync.Mutex
	latest   *channelResolver
}

func (b *channelBuilder) Build(target grpcresolver.Target, cc grpcresolver.ClientConn, opts grpcresolver.BuildOptions) (grpcresolver.Resolver, error) {
	r, err := b.build(target, cc, opts, func(*bootstrap.Config, string, estats.MetricsRecorder) (xdsclient.Client, func(), error) {
		return b.transport, func() {}, nil
	})
	b.latestMu.Lock()
	defer b.latestMu.Unlock()
	b.latest, _ = r.(*channelResolver)
	return r, err
}

// settle waits until the resolver has published its last change.
func (b *channelBuilder) settle() {
	b.latestMu.Lock()
	r := b.latest
	b.latestMu.Unlock()
	r.mu.Lock()
	x := r.xds
	r.mu.Unlock()
	for x != nil && x.pending.Load() {
		runtime.Gosched()
	}
	r.mu.Lock() // held while a change is published
	defer r.mu.Unlock()
}

// bootstrapOf returns a bootstrap with the given dns_fallback, "default" for none.
func bootstrapOf(dnsFallback string) (*bootstrap.Config, error) {
	fallback := fmt.Sprintf(`"dns_fallback": %q, `, dnsFallback)
	if dnsFallback == "default" {
		fallback = ""
	}
	return bootstrap.Parse("test", fmt.Appendf(nil, `{%s"xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}]}]}`, fallback))
}

// standIn is a channel that DNS leads to one backend, and xDS, once serve is called, to
// another.
type standIn struct {
	*channelBuilder
	t         *testing.T
	cc        *grpc.ClientConn
	dns, mesh *testutils.Backend
}

func newStandIn(t *testing.T, opts ...grpc.DialOption) *standIn {
	t.Helper()
	s := &standIn{
		channelBuilder: &channelBuilder{transport: newTransport(t), builder: &builder{scheme: scheme, config: func() (*bootstrap.Config, error) { return bootstrapOf("default") }}},
		t:              t,
		dns:            testutils.StartBackend(t, "dns"),
		mesh:           testutils.StartBackend(t, "mesh"),
	}
	s.cc = s.dial(s.dns.Addr(), opts...)
	return s
}

func (s *standIn) dial(endpoint string, opts ...grpc.DialOption) *grpc.ClientConn {
	s.t.Helper()
	cc, err := grpc.NewClient("xds:///"+endpoint, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(s.channelBuilder), grpc.WithAuthority("authority")}, opts...)...)
	xdstest.NoError(s.t, err)
	s.t.Cleanup(func() { cc.Close() })
	return cc
}

// name is the name of the channel's Listener, listener the watch of it.
func (s *standIn) name() string     { return strings.TrimPrefix(s.cc.Target(), "xds:///") }
func (s *standIn) listener() string { return "Listener " + s.name() }

// give answers the watch of a resource, and waits for what follows from it.
func (s *standIn) give(key string, value any, err error) {
	s.t.Helper()
	s.cc.Connect()
	s.watcher(s.t, key).ResourceChanged(value, err, func() {})
	s.settle()
}

// refuse answers the Listener with an error.
func (s *standIn) refuse(kind xdsclient.ErrorKind) {
	s.t.Helper()
	s.give(s.listener(), nil, failure(kind, "because the test says so"))
}

// decoded is a resource as the transport decodes it.
func decoded(t *testing.T, typ *xdsclient.ResourceType, m proto.Message) any {
	t.Helper()
	value, err := typ.Decode(xdsmsg.Any(m), xdsclient.DecodeOptions{})
	xdstest.NoError(t, err)
	return value
}

// meshResources are the resources of a target that lead to a backend.
func meshResources(t *testing.T, target string, backend *testutils.Backend) map[string]any {
	t.Helper()
	return map[string]any{
		"Listener " + target:      decoded(t, xdsresource.ListenerType, xdsmsg.DefaultListener(target, "R")),
		"RouteConfiguration R":    decoded(t, xdsresource.RouteConfigurationType, xdsmsg.RouteConfig("R", "authority", xdsmsg.PrefixRoute("", "C"))),
		"Cluster C":               decoded(t, xdsresource.ClusterType, xdsmsg.EDSCluster("C", "")),
		"ClusterLoadAssignment C": decoded(t, xdsresource.EndpointsType, xdsmsg.SimpleEndpoints("C", backend.Addr())),
	}
}

// serve gives everything that xDS has.
func (s *standIn) serve() {
	s.t.Helper()
	all := meshResources(s.t, s.name(), s.mesh)
	for _, key := range []string{s.listener(), "RouteConfiguration R", "Cluster C", "ClusterLoadAssignment C"} {
		s.give(key, all[key], nil)
	}
}

// invoke makes an RPC and returns the backend that answered.
func invoke(ctx context.Context, cc *grpc.ClientConn, opts ...grpc.CallOption) (string, error) {
	var header metadata.MD
	_, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}, append(opts, grpc.Header(&header))...)
	return strings.Join(header.Get(testutils.BackendIDHeader), ","), err
}

// invokeStream is invoke for a streaming RPC.
func invokeStream(ctx context.Context, cc *grpc.ClientConn, opts ...grpc.CallOption) (string, error) {
	stream, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(ctx, opts...)
	if err != nil {
		return "", err
	}
	_ = stream.CloseSend()
	if _, err = stream.Recv(); err != io.EOF {
		return "", err
	}
	header, err := stream.Header()
	return strings.Join(header.Get(testutils.BackendIDHeader), ","), err
}
