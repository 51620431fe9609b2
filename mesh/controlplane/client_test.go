package controlplane_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

const (
	lds = xdsmsg.ListenerType
	rds = xdsmsg.RouteType
	cds = xdsmsg.ClusterType
	eds = xdsmsg.EndpointType
	// custom is a type that the control plane knows nothing of.
	custom = "type.googleapis.com/google.protobuf.StringValue"
)

// testTimeout ends a test that waits so long for one response. All responses of a test may take longer, on a machine under load.
const testTimeout = 30 * time.Second

// testServer is a control plane on loopback.
type testServer struct {
	store   *controlplane.Store
	control *controlplane.Server
	conn    *grpc.ClientConn
}

// startServer starts a server with the last of the options, if there are any. Removals are sent at
// once unless the options have a delay.
func startServer(t testing.TB, opts ...controlplane.Options) *testServer {
	t.Helper()
	store := controlplane.NewStore()
	var options controlplane.Options
	if len(opts) > 0 {
		options = opts[len(opts)-1]
	}
	if options.RemovalDelay == 0 {
		options.RemovalDelay = -1
	}
	control := controlplane.NewServer(store, options)
	return &testServer{store: store, control: control, conn: serve(t, control)}
}

// serve starts a gRPC server with a service on loopback, and returns a connection to it.
func serve(t testing.TB, service interface {
	Register(grpc.ServiceRegistrar)
	Close()
}) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	service.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(64<<10))
	xdstest.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		service.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return conn
}

// eachProtocol runs a test over SotW and delta.
func eachProtocol(t *testing.T, test func(t *testing.T, protocol controlplane.Protocol, open func(*testServer) *client)) {
	t.Parallel()
	xdstest.Parallel(t, "SotW", func(t *testing.T) {
		test(t, controlplane.ProtocolSotW, func(s *testServer) *client { return s.open(t) })
	})
	xdstest.Parallel(t, "delta", func(t *testing.T) {
		test(t, controlplane.ProtocolDelta, func(s *testServer) *client { return s.openDelta(t) })
	})
}

func (s *testServer) update(t testing.TB, change func(*controlplane.Tx)) uint64 {
	t.Helper()
	version, err := s.store.Update(change)
	xdstest.NoError(t, err)
	return version
}

func (s *testServer) set(t testing.TB, messages ...proto.Message) uint64 {
	t.Helper()
	return s.update(t, func(tx *controlplane.Tx) { tx.Set(messages...) })
}

// The methods are called without the generated client, whose service has another name.
const (
	adsService  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
	dpdsService = "/envoy.service.dynamic_parameters.v3.DynamicParametersDiscoveryService/"
)

// client is a stream of either protocol, which sends only what the test sends.
type client struct {
	t      testing.TB
	store  *controlplane.Store
	delta  bool
	fences int
	stream grpc.ClientStream
	cancel context.CancelFunc
}

// request is a request of either protocol.
type request struct {
	node    *corepb.Node
	typeURL string
	// names and locators are all (SotW), or those to add (delta).
	names, unsubscribe []string
	locators           []*discoverypb.ResourceLocator
	// has are the initial_resource_versions (delta).
	has map[string]string
	// answers is the response that is accepted, or rejected with a message.
	answers reply
	rejects string
}

// reply is a response of either protocol.
type reply struct {
	typeURL, version, nonce string
	// content has, in order, "a" for a resource, "-a" for a removed one and "!a: CODE" for an error.
	content []string
	// values are the bytes of the resources.
	values []string
	errors []*discoverypb.ResourceError
	// packed are the resources over SotW, and resources those over delta.
	packed    []*anypb.Any
	resources []*discoverypb.Resource
}

// open opens a SotW stream.
func (s *testServer) open(t testing.TB) *client {
	c := openClient(t, s.conn, adsService+"StreamAggregatedResources")
	c.store = s.store
	return c
}

// openDelta opens a delta stream.
func (s *testServer) openDelta(t testing.TB) *client {
	c := openClient(t, s.conn, adsService+"DeltaAggregatedResources")
	c.store = s.store
	return c
}

func openClient(t testing.TB, conn *grpc.ClientConn, method string) *client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	xdstest.NoError(t, err)
	return &client{t: t, delta: strings.Contains(method, "/Delta"), stream: stream, cancel: cancel}
}

func (c *client) send(r request) error {
	if !c.delta {
		return c.stream.SendMsg(&discoverypb.DiscoveryRequest{
			Node: r.node, TypeUrl: r.typeURL, ResourceNames: r.names, ResourceLocators: r.locators,
			VersionInfo: r.answers.version, ResponseNonce: r.answers.nonce, ErrorDetail: rejection(r.rejects),
		})
	}
	return c.stream.SendMsg(&discoverypb.DeltaDiscoveryRequest{
		Node: r.node, TypeUrl: r.typeURL, ResourceNamesSubscribe: r.names, ResourceLocatorsSubscribe: r.locators,
		ResourceNamesUnsubscribe: r.unsubscribe, InitialResourceVersions: r.has, ResponseNonce: r.answers.nonce, ErrorDetail: rejection(r.rejects),
	})
}

func (c *client) receive() (reply, error) {
	defer time.AfterFunc(testTimeout, c.cancel).Stop()
	if !c.delta {
		resp := new(discoverypb.DiscoveryResponse)
		err := c.stream.RecvMsg(resp)
		r := reply{typeURL: resp.GetTypeUrl(), version: resp.GetVersionInfo(), nonce: resp.GetNonce(), packed: resp.GetResources()}
		for _, packed := range resp.GetResources() {
			r.content = append(r.content, nameIn(packed))
			r.values = append(r.values, string(packed.GetValue()))
		}
		return r.withErrors(resp.GetResourceErrors()), err
	}
	resp := new(discoverypb.DeltaDiscoveryResponse)
	err := c.stream.RecvMsg(resp)
	r := reply{typeURL: resp.GetTypeUrl(), nonce: resp.GetNonce(), resources: resp.GetResources()}
	for _, resource := range resp.GetResources() {
		r.content = append(r.content, resource.GetName())
		r.values = append(r.values, string(resource.GetResource().GetValue()))
	}
	for _, name := range resp.GetRemovedResources() {
		r.content = append(r.content, "-"+name)
	}
	return r.withErrors(resp.GetResourceErrors()), err
}

func (c *client) request(r request) {
	c.t.Helper()
	xdstest.NoError(c.t, c.send(r))
}

func (c *client) next() reply {
	c.t.Helper()
	r, err := c.receive()
	xdstest.NoError(c.t, err)
	return r
}

// end waits for the stream's status.
func (c *client) end() error {
	for {
		if _, err := c.receive(); err != nil {
			return err
		}
	}
}

func nodeOf(id string) *corepb.Node {
	if id == "" {
		return nil
	}
	return &corepb.Node{Id: id}
}

// rejection is an error_detail, nil without a message.
func rejection(message string) *statuspb.Status {
	if message == "" {
		return nil
	}
	return &statuspb.Status{Code: int32(codes.InvalidArgument), Message: message}
}

func (r reply) withErrors(errs []*discoverypb.ResourceError) reply {
	r.errors = errs
	for _, e := range errs {
		r.content = append(r.content, fmt.Sprintf("!%s: %v", e.GetResourceName().GetName(), codes.Code(e.GetErrorDetail().GetCode())))
	}
	slices.Sort(r.content)
	return r
}

// nameIn returns the name in a resource, or the bytes of one that has none.
func nameIn(packed *anypb.Any) string {
	m, _ := packed.UnmarshalNew()
	switch m := m.(type) {
	case interface{ GetName() string }:
		return m.GetName()
	case interface{ GetClusterName() string }:
		return m.GetClusterName()
	case *wrapperspb.StringValue:
		return m.GetValue()
	default:
		return string(packed.GetValue())
	}
}

// subscribe sends a request that answers nothing.
func (c *client) subscribe(typeURL string, names ...string) { c.identify("node", typeURL, names...) }

// identify is subscribe with a node of its own.
func (c *client) identify(node, typeURL string, names ...string) {
	c.t.Helper()
	c.request(request{node: nodeOf(node), typeURL: typeURL, names: names})
}

// drop unsubscribes from names over either protocol, so that only rest are subscribed.
func (c *client) drop(typeURL string, rest []string, names ...string) {
	c.t.Helper()
	if c.delta {
		c.request(request{typeURL: typeURL, unsubscribe: names})
	} else {
		c.subscribe(typeURL, rest...)
	}
}

// resume is the first request for a type on a new delta stream of a client that has resources from before.
func (c *client) resume(typeURL string, versions map[string]string, names ...string) {
	c.t.Helper()
	c.request(request{typeURL: typeURL, names: names, has: versions})
}

// ack accepts a response. Over SotW, names are those that are wanted from then on.
func (c *client) ack(r reply, names ...string) {
	c.t.Helper()
	if c.delta {
		names = nil
	}
	c.request(request{typeURL: r.typeURL, names: names, answers: r})
}

// want receives a response and compares its type and content, which may be in any order.
func (c *client) want(typeURL string, content ...string) reply {
	c.t.Helper()
	r := c.next()
	if r.typeURL != typeURL {
		c.t.Fatalf("got a response of type %s with %q, want type %s with %q", r.typeURL, r.content, typeURL, content)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(content)), r.content); diff != "" {
		c.t.Fatalf("content of the %s response (-want +got):\n%s", typeURL, diff)
	}
	return r
}

// fence checks that nothing is due: it subscribes to a resource of a type that is pushed after all others,
// and expects its response to be the next.
func (c *client) fence() {
	c.t.Helper()
	c.fences++
	name := fmt.Sprintf("fence-%p-%d", c, c.fences)
	if _, err := c.store.Update(func(tx *controlplane.Tx) { tx.SetNamed(name, nil, wrapperspb.String(name)) }); err != nil {
		c.t.Fatal(err)
	}
	c.subscribe(custom, name)
	c.ack(c.want(custom, name))
}
