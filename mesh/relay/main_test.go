package relay_test

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/goleak"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/mesh/relay"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a control plane, a relay before it, and clients of the relay.
type rig struct {
	t   *testing.T
	ctx context.Context
	up  *meshtest.Server
	log xdstest.Log
	*relay.Relay
	addr string
}

// overEach runs a test with SotW and with delta upstream.
func overEach(t *testing.T, test func(t *testing.T, features ...string)) {
	xdstest.Parallel(t, "SotW upstream", func(t *testing.T) { test(t) })
	xdstest.Parallel(t, "delta upstream", func(t *testing.T) { test(t, "delta") })
}

// newRig starts a control plane that the relay speaks to by these features, and the relay.
func newRig(t *testing.T, change func(*relay.Options), features ...string) *rig {
	t.Helper()
	return newRigOver(t, meshtest.StartServer(t), change, features...)
}

func newRigOver(t *testing.T, up *meshtest.Server, change func(*relay.Options), features ...string) *rig {
	t.Helper()
	r := &rig{t: t, ctx: testutils.Context(t), up: up}
	r.Relay, r.addr = r.start(change, features...)
	return r
}

// start starts a relay before the control plane.
func (r *rig) start(change func(*relay.Options), features ...string) (*relay.Relay, string) {
	r.t.Helper()
	cfg, err := bootstrap.Parse("test", r.up.Bootstrap("relay", testutils.ServerFeatures(features...), testutils.Authority("authority", "", nil)))
	xdstest.NoError(r.t, err)
	opts := relay.Options{
		Bootstrap: cfg,
		Client: []xdsclient.Option{
			xdsclient.WithBackoff(backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond}),
		},
		Log: slog.New(slog.NewTextHandler(&r.log, nil)),
	}
	if change != nil {
		change(&opts)
	}
	relayed, err := relay.New(opts)
	xdstest.NoError(r.t, err)
	return relayed, r.serve(relayed)
}

// serve serves a relay until the end of the test, and returns the address.
func (r *rig) serve(relayed *relay.Relay, opts ...grpc.ServerOption) string {
	r.t.Helper()
	server := grpc.NewServer(opts...)
	relayed.Register(server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(r.t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(listener); err != nil {
			r.t.Error(err)
		}
	}()
	r.t.Cleanup(func() {
		relayed.Close()
		server.Stop()
		<-served
	})
	return listener.Addr().String()
}

// node is a client's node. Each pair is a key of the metadata and its value.
func node(id string, metadata ...string) *corepb.Node {
	n := &corepb.Node{Id: id, Cluster: "test", UserAgentName: "client"}
	if len(metadata) > 0 {
		n.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
	}
	for i := 0; i < len(metadata); i += 2 {
		n.Metadata.Fields[metadata[i]] = structpb.NewStringValue(metadata[i+1])
	}
	return n
}

// downstream is a client's stream, of either protocol.
type downstream[Req, Resp any] struct {
	grpc.BidiStreamingClient[Req, Resp]
	t    *testing.T
	stop func()
}

type (
	deltaStream = downstream[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse]
	sotwStream  = downstream[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse]
)

const adsMethods = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"

func open[Req, Resp any](ctx context.Context, t *testing.T, addr, method string) *downstream[Req, Resp] {
	t.Helper()
	return openWith[Req, Resp](ctx, t, addr, method, insecure.NewCredentials())
}

func openWith[Req, Resp any](
	ctx context.Context, t *testing.T, addr, method string, creds credentials.TransportCredentials,
) *downstream[Req, Resp] {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	xdstest.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return openOn[Req, Resp](ctx, t, conn, method)
}

func openOn[Req, Resp any](ctx context.Context, t *testing.T, conn *grpc.ClientConn, method string) *downstream[Req, Resp] {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, adsMethods+method)
	xdstest.NoError(t, err)
	return &downstream[Req, Resp]{&grpc.GenericClientStream[Req, Resp]{ClientStream: stream}, t, cancel}
}

// delta opens a delta stream to the relay, and sotw one of SotW.
func (r *rig) delta() *deltaStream { return r.deltaTo(r.addr) }
func (r *rig) sotw() *sotwStream {
	return open[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse](r.ctx, r.t, r.addr, "StreamAggregatedResources")
}

func (r *rig) deltaTo(addr string) *deltaStream {
	return open[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse](r.ctx, r.t, addr, "DeltaAggregatedResources")
}

func (d *downstream[Req, Resp]) send(r *Req) {
	d.t.Helper()
	xdstest.NoError(d.t, d.Send(r))
}

func (d *downstream[Req, Resp]) receive() *Resp {
	d.t.Helper()
	r, err := d.Recv()
	xdstest.NoError(d.t, err)
	return r
}

// only returns the only resource of a response, of a name.
func only(t *testing.T, r *discoverypb.DeltaDiscoveryResponse, name string) *discoverypb.Resource {
	t.Helper()
	if len(r.GetResources()) != 1 || r.GetResources()[0].GetName() != name {
		t.Fatalf("got %v, want one resource %q", r, name)
	}
	return r.GetResources()[0]
}

// wantOnly receives a response with one resource, of a name, and returns the resource.
func wantOnly(d *deltaStream, name string) *discoverypb.Resource {
	d.t.Helper()
	return only(d.t, d.receive(), name)
}

// wantRemoved receives a response that removes names.
func wantRemoved(d *deltaStream, names ...string) {
	d.t.Helper()
	if r := d.receive(); !slices.Equal(slices.Sorted(slices.Values(r.GetRemovedResources())), names) {
		d.t.Fatalf("got %v, want the removal of %q", r, names)
	}
}

// wantError receives a response with one error, for a name, and returns the error.
func wantError(d *deltaStream, name string, code codes.Code) *statuspb.Status {
	d.t.Helper()
	r := d.receive()
	errs := r.GetResourceErrors()
	if len(errs) != 1 || errs[0].GetResourceName().GetName() != name || codes.Code(errs[0].GetErrorDetail().GetCode()) != code {
		d.t.Fatalf("got %v, want %v for %q", r, code, name)
	}
	return errs[0].GetErrorDetail()
}

// wantCount receives a SotW response with so many resources.
func wantCount(s *sotwStream, want int) {
	s.t.Helper()
	if got := s.receive().GetResources(); len(got) != want {
		s.t.Fatalf("got %v over SotW, want %d resources", got, want)
	}
}

// client opens a delta stream that subscribes to Clusters.
func (r *rig) client(n *corepb.Node, names ...string) *deltaStream {
	r.t.Helper()
	d := r.delta()
	subscribe(d, n, clusterType, names...)
	return d
}

// subscriber is client for one Cluster, which it gets.
func (r *rig) subscriber(id, name string) *deltaStream {
	r.t.Helper()
	d := r.client(node(id), name)
	wantOnly(d, name)
	return d
}

// subscribe subscribes to names over delta, as a node in the first request of the stream.
func subscribe(d *deltaStream, n *corepb.Node, typeURL string, names ...string) {
	d.t.Helper()
	d.send(&discoverypb.DeltaDiscoveryRequest{Node: n, TypeUrl: typeURL, ResourceNamesSubscribe: names})
}

// subscribeTo subscribes to names with the same constraints over delta.
func subscribeTo(d *deltaStream, n *corepb.Node, typeURL string, constraints []string, names ...string) {
	d.t.Helper()
	req := &discoverypb.DeltaDiscoveryRequest{Node: n, TypeUrl: typeURL}
	for _, name := range names {
		req.ResourceLocatorsSubscribe = append(req.ResourceLocatorsSubscribe, &discoverypb.ResourceLocator{
			Name: name, DynamicParameterConstraints: xdstest.Constraints(constraints...).ToProto(),
		})
	}
	d.send(req)
}

// await waits until the state is as it should be. The relay's state changes with what clients and
// control plane send, of which a test has seen the effect or waits for it here.
func (r *rig) await(what string, ok func(relay.Stats) bool) {
	r.t.Helper()
	for !ok(r.Stats()) {
		select {
		case <-r.ctx.Done():
			r.t.Fatalf("%s: not so in time, the relay has %+v", what, r.Stats())
		case <-time.After(time.Millisecond):
		}
	}
}

// version returns the version that the control plane has of a resource.
func (r *rig) version(typeURL, name string) string {
	r.t.Helper()
	for _, res := range r.up.Store().Resources(typeURL) {
		if res.Name() == name {
			return res.Version()
		}
	}
	r.t.Fatalf("the control plane has no %s %q", typeURL, name)
	return ""
}

// member returns the name of a Cluster in a glob collection, "*" for the collection.
func member(s string) string { return "xdstp://authority/envoy.config.cluster.v3.Cluster/" + s }

// heartbeat has the control plane begin the TTL of a resource again.
func (r *rig) heartbeat(name, version string, ttl time.Duration) {
	r.t.Helper()
	xdstest.NoError(r.t, r.up.Send(&discoverypb.DeltaDiscoveryResponse{
		TypeUrl: clusterType, Nonce: "heartbeat",
		Resources: []*discoverypb.Resource{{Name: name, Version: version, Ttl: durationpb.New(ttl)}},
	}))
}

// awaitUnreachable waits until the relay has noticed that the control plane is unreachable.
func (r *rig) awaitUnreachable() {
	r.t.Helper()
	r.await("the control plane is unreachable", func(s relay.Stats) bool { return s.Unreachable == 1 })
}

// rewrap has the control plane send each resource of a delta response in another envelope.
func (r *rig) rewrap(change func(*discoverypb.Resource)) {
	r.up.OnDeltaResponse(func(_ uint64, resp *discoverypb.DeltaDiscoveryResponse) *discoverypb.DeltaDiscoveryResponse {
		resources := resp.Resources
		resp.Resources = nil
		for _, res := range resources {
			m := &discoverypb.Resource{Name: res.GetName(), Version: res.GetVersion(), Resource: res.GetResource(), DynamicParameters: res.GetDynamicParameters()}
			change(m)
			resp.Resources = append(resp.Resources, m)
		}
		return resp
	})
}
