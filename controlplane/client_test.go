package controlplane_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

const (
	lds = xdsmsg.ListenerType
	rds = xdsmsg.RouteType
	cds = xdsmsg.ClusterType
	eds = xdsmsg.EndpointType
	// custom is a type that the control plane knows nothing of.
	custom = "type.googleapis.com/google.protobuf.StringValue"
)

// testTimeout ends a test that hangs.
const testTimeout = 30 * time.Second

// testServer is a control plane on loopback.
type testServer struct {
	store   *controlplane.Store
	control *controlplane.Server
	conn    *grpc.ClientConn
	// mirror is set if clients are served from another store, on demand.
	mirror *mirror
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
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	server := grpc.NewServer()
	control.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(64<<10))
	xdstest.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		control.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return &testServer{store: store, control: control, conn: conn}
}

// startSotW starts a parallel test with a server that has resources and a SotW client.
func startSotW(t *testing.T, resources ...proto.Message) (*testServer, *client) {
	t.Helper()
	t.Parallel()
	s := startServer(t)
	s.set(t, resources...)
	return s, s.open(t)
}

// startDelta is startSotW with a delta client.
func startDelta(t *testing.T, resources ...proto.Message) (*testServer, *deltaClient) {
	t.Helper()
	t.Parallel()
	s := startServer(t)
	s.set(t, resources...)
	return s, s.openDelta(t)
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

func (s *testServer) delete(t testing.TB, typeURL string, names ...string) {
	t.Helper()
	s.update(t, func(tx *controlplane.Tx) {
		for _, name := range names {
			tx.Delete(typeURL, name)
		}
	})
}

// rawClient is the part that all clients of tests share. It sends only what the test sends.
type rawClient[Req, Resp any] struct {
	t      testing.TB
	stream grpc.BidiStreamingClient[Req, Resp]
	store  *controlplane.Store
	cancel context.CancelFunc
	fences int
	// fenced asks for a resource of the custom type and waits for it.
	fenced func(name string)
}

func newRawClient[Req, Resp any](
	t testing.TB,
	store *controlplane.Store,
	open func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[Req, Resp], error),
) *rawClient[Req, Resp] {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	stream, err := open(ctx)
	xdstest.NoError(t, err)
	return &rawClient[Req, Resp]{t: t, stream: stream, store: store, cancel: cancel}
}

func (c *rawClient[Req, Resp]) send(req *Req) {
	c.t.Helper()
	if err := c.stream.Send(req); err != nil {
		c.t.Fatalf("Send: %v", err)
	}
}

func (c *rawClient[Req, Resp]) recv() *Resp {
	c.t.Helper()
	resp, err := c.stream.Recv()
	if err != nil {
		c.t.Fatalf("Recv: %v", err)
	}
	return resp
}

// compare ends the test unless a response is of a type and has this content, which may be in any order.
func (c *rawClient[Req, Resp]) compare(typeURL string, want []string, gotType string, got []string) {
	c.t.Helper()
	if gotType != typeURL {
		c.t.Fatalf("got a response of type %s with %q, want type %s with %q", gotType, got, typeURL, want)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), got); diff != "" {
		c.t.Fatalf("content of the %s response (-want +got):\n%s", typeURL, diff)
	}
}

// end waits for the stream's status.
func (c *rawClient[Req, Resp]) end() error {
	c.t.Helper()
	for {
		if _, err := c.stream.Recv(); err != nil {
			return err
		}
	}
}

// fence proves that nothing is due: it asks for a resource of a type that is
// pushed after all others, and expects its response to be the next.
func (c *rawClient[Req, Resp]) fence() {
	c.t.Helper()
	c.fences++
	name := fmt.Sprintf("fence-%p-%d", c, c.fences)
	if _, err := c.store.Update(func(tx *controlplane.Tx) { tx.SetNamed(name, nil, wrapperspb.String(name)) }); err != nil {
		c.t.Fatal(err)
	}
	c.fenced(name)
}

// typeStatus returns the view that the server has of a type of the newest client,
// once it has taken in all requests so far. One that has gone may still be there.
func (c *rawClient[Req, Resp]) typeStatus(control *controlplane.Server, typeURL string) controlplane.TypeStatus {
	c.t.Helper()
	c.fence()
	return statusOf(c.t, control, typeURL)
}

func statusOf(t testing.TB, control *controlplane.Server, typeURL string) controlplane.TypeStatus {
	t.Helper()
	for _, cl := range slices.Backward(control.Clients()) {
		for _, ts := range cl.Types {
			if ts.TypeURL == typeURL {
				return ts
			}
		}
	}
	t.Fatalf("no client has asked for %s", typeURL)
	return controlplane.TypeStatus{}
}

func rejection(message string) *statuspb.Status {
	return &statuspb.Status{Code: int32(codes.InvalidArgument), Message: message}
}

// client is a SotW client of the published service.
type client struct {
	*rawClient[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse]
}

func (s *testServer) open(t testing.TB) *client {
	t.Helper()
	c := &client{newRawClient(t, s.store, discoverypb.NewAggregatedDiscoveryServiceClient(s.conn).StreamAggregatedResources)}
	c.fenced = func(name string) {
		c.subscribe(custom, name)
		c.ack(c.want(custom, name))
	}
	return c
}

// subscribe sends a request that answers nothing.
func (c *client) subscribe(typeURL string, names ...string) {
	c.t.Helper()
	c.send(&discoverypb.DiscoveryRequest{
		Node: &corepb.Node{Id: "node"}, TypeUrl: typeURL, ResourceNames: names,
	})
}

// ack accepts a response and says which names are wanted from then on.
func (c *client) ack(resp *discoverypb.DiscoveryResponse, names ...string) {
	c.t.Helper()
	c.send(&discoverypb.DiscoveryRequest{
		TypeUrl: resp.GetTypeUrl(), ResourceNames: names,
		VersionInfo: resp.GetVersionInfo(), ResponseNonce: resp.GetNonce(),
	})
}

// nack rejects a response; accepted is the version before.
func (c *client) nack(resp *discoverypb.DiscoveryResponse, accepted, message string, names ...string) {
	c.t.Helper()
	c.send(&discoverypb.DiscoveryRequest{
		TypeUrl: resp.GetTypeUrl(), ResourceNames: names,
		VersionInfo: accepted, ResponseNonce: resp.GetNonce(),
		ErrorDetail: rejection(message),
	})
}

// want receives a response and compares its type and the names in it.
func (c *client) want(typeURL string, names ...string) *discoverypb.DiscoveryResponse {
	c.t.Helper()
	resp := c.recv()
	c.compare(typeURL, names, resp.GetTypeUrl(), namesIn(c.t, resp))
	return resp
}

// namesIn returns the names of a response's resources in order.
func namesIn(t testing.TB, resp *discoverypb.DiscoveryResponse) []string {
	t.Helper()
	var names []string
	for _, packed := range resp.GetResources() {
		m, err := packed.UnmarshalNew()
		xdstest.NoError(t, err)
		switch m := m.(type) {
		case interface{ GetName() string }:
			names = append(names, m.GetName())
		case interface{ GetClusterName() string }:
			names = append(names, m.GetClusterName())
		case *wrapperspb.StringValue:
			names = append(names, m.GetValue())
		default:
			t.Fatalf("a resource of type %T has no name", m)
		}
	}
	slices.Sort(names)
	return names
}

type (
	publishedRequest = discoverypb.DiscoveryRequest

	deltaRequest  = discoverypb.DeltaDiscoveryRequest
	deltaResponse = discoverypb.DeltaDiscoveryResponse
)

// deltaClient is a delta client of the published service.
type deltaClient struct {
	*rawClient[deltaRequest, deltaResponse]
}

func (s *testServer) openDelta(t testing.TB) *deltaClient {
	t.Helper()
	c := &deltaClient{newRawClient(t, s.store, discoverypb.NewAggregatedDiscoveryServiceClient(s.conn).DeltaAggregatedResources)}
	c.fenced = func(name string) {
		c.subscribe(custom, name)
		c.ack(c.want(custom, name))
	}
	return c
}

func (c *deltaClient) subscribe(typeURL string, names ...string) {
	c.t.Helper()
	c.send(&deltaRequest{Node: &corepb.Node{Id: "node"}, TypeUrl: typeURL, ResourceNamesSubscribe: names})
}

func (c *deltaClient) unsubscribe(typeURL string, names ...string) {
	c.t.Helper()
	c.send(&deltaRequest{TypeUrl: typeURL, ResourceNamesUnsubscribe: names})
}

// resume is the first request for a type on a new stream of a client that has
// resources from before.
func (c *deltaClient) resume(typeURL string, versions map[string]string, names ...string) {
	c.t.Helper()
	c.send(&deltaRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names, InitialResourceVersions: versions})
}

func (c *deltaClient) ack(resp *deltaResponse) {
	c.t.Helper()
	c.send(&deltaRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()})
}

func (c *deltaClient) nack(resp *deltaResponse, message string) {
	c.t.Helper()
	c.send(&deltaRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce(), ErrorDetail: rejection(message)})
}

// want receives a response and compares its type and content: "a" is a
// resource, "-a" a removed one, "!a" an error.
func (c *deltaClient) want(typeURL string, content ...string) *deltaResponse {
	c.t.Helper()
	resp := c.recv()
	c.compare(typeURL, content, resp.GetTypeUrl(), contentOf(resp))
	return resp
}

func contentOf(resp *deltaResponse) []string {
	var content []string
	for _, r := range resp.GetResources() {
		content = append(content, r.GetName())
	}
	for _, name := range resp.GetRemovedResources() {
		content = append(content, "-"+name)
	}
	content = append(content, errorNames(resp.GetResourceErrors())...)
	slices.Sort(content)
	return content
}

func errorNames(errs []*discoverypb.ResourceError) []string {
	var names []string
	for _, e := range errs {
		names = append(names, "!"+e.GetResourceName().GetName())
	}
	return names
}

// versionsOf is what a client that took in the responses has.
func versionsOf(responses ...*deltaResponse) map[string]string {
	versions := map[string]string{}
	for _, resp := range responses {
		for _, r := range resp.GetResources() {
			versions[r.GetName()] = r.GetVersion()
		}
	}
	return versions
}
