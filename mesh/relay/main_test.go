package relay_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/mesh/relay"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

const (
	clusterType = xdsmsg.ClusterType
	variants    = "dynamic_parameter_constraints"
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
	r := &rig{t: t, ctx: testutils.Context(t), up: meshtest.StartServer(t)}
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
		Client:    xdsclient.Options{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond}},
		Log:       slog.New(slog.NewTextHandler(&r.log, nil)),
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

type deltaStream = downstream[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse]

const adsMethods = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"

func open[Req, Resp any](ctx context.Context, t *testing.T, addr, method string, opts ...grpc.DialOption) *downstream[Req, Resp] {
	t.Helper()
	conn, err := grpc.NewClient(addr, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)...)
	xdstest.NoError(t, err)
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(func() {
		cancel()
		conn.Close()
	})
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, adsMethods+method)
	xdstest.NoError(t, err)
	return &downstream[Req, Resp]{&grpc.GenericClientStream[Req, Resp]{ClientStream: stream}, t, cancel}
}

// delta opens a delta stream to the relay.
func (r *rig) delta() *deltaStream { return r.deltaTo(r.addr) }

func (r *rig) deltaTo(addr string, opts ...grpc.DialOption) *deltaStream {
	return open[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse](r.ctx, r.t, addr, "DeltaAggregatedResources", opts...)
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
