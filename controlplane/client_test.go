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
	"github.com/dynxds/dynxds/testutils/xdsmsg"
)

const (
	lds = xdsmsg.ListenerType
	rds = xdsmsg.RouteType
	cds = xdsmsg.ClusterType
	eds = xdsmsg.EndpointType
	// custom is a type that the control plane knows nothing of.
	custom = "type.googleapis.com/google.protobuf.StringValue"
)

// testServer is a control plane on loopback.
type testServer struct {
	store   *controlplane.Store
	control *controlplane.Server
	conn    *grpc.ClientConn
}

func startServer(t testing.TB, opts ...controlplane.Option) *testServer {
	t.Helper()
	store := controlplane.NewStore()
	control := controlplane.NewServer(store, opts...)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	control.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
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

func (s *testServer) update(t testing.TB, change func(*controlplane.Tx)) uint64 {
	t.Helper()
	version, err := s.store.Update(change)
	if err != nil {
		t.Fatal(err)
	}
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

// client is an ADS client that does only what it is told to.
type client struct {
	t      testing.TB
	stream discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	store  *controlplane.Store
	fences int
	cancel context.CancelFunc
}

func (s *testServer) open(t testing.TB) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	stream, err := discoverypb.NewAggregatedDiscoveryServiceClient(s.conn).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &client{t: t, stream: stream, store: s.store, cancel: cancel}
}

func (c *client) send(req *discoverypb.DiscoveryRequest) {
	c.t.Helper()
	if err := c.stream.Send(req); err != nil {
		c.t.Fatalf("Send: %v", err)
	}
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
		ErrorDetail: &statuspb.Status{Code: int32(codes.InvalidArgument), Message: message},
	})
}

func (c *client) recv() *discoverypb.DiscoveryResponse {
	c.t.Helper()
	resp, err := c.stream.Recv()
	if err != nil {
		c.t.Fatalf("Recv: %v", err)
	}
	return resp
}

// want receives a response and compares its type and the names in it.
func (c *client) want(typeURL string, names ...string) *discoverypb.DiscoveryResponse {
	c.t.Helper()
	resp := c.recv()
	if resp.GetTypeUrl() != typeURL {
		c.t.Fatalf("got a response of type %s with %q, want type %s with %q", resp.GetTypeUrl(), namesIn(c.t, resp), typeURL, names)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(names)), namesIn(c.t, resp)); diff != "" {
		c.t.Fatalf("names in the %s response (-want +got):\n%s", typeURL, diff)
	}
	return resp
}

// fence proves that nothing is due: it asks for a resource of a type that is
// pushed after all others, and expects its response to be the next.
func (c *client) fence() {
	c.t.Helper()
	c.fences++
	name := fmt.Sprintf("fence-%p-%d", c, c.fences)
	if _, err := c.store.Update(func(tx *controlplane.Tx) { tx.SetNamed(name, wrapperspb.String(name)) }); err != nil {
		c.t.Fatal(err)
	}
	c.subscribe(custom, name)
	resp := c.recv()
	if resp.GetTypeUrl() != custom {
		c.t.Fatalf("got a response of type %s with %q, want none", resp.GetTypeUrl(), namesIn(c.t, resp))
	}
	c.ack(resp)
}

// end waits for the stream's status.
func (c *client) end() error {
	c.t.Helper()
	for {
		if _, err := c.stream.Recv(); err != nil {
			return err
		}
	}
}

// namesIn returns the names of a response's resources in order.
func namesIn(t testing.TB, resp *discoverypb.DiscoveryResponse) []string {
	t.Helper()
	var names []string
	for _, packed := range resp.GetResources() {
		m, err := packed.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
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

// typeStatus returns the view that the server of one client has of a type. It
// changes when the reader has taken in a request, which the fence makes sure
// of.
func (c *client) typeStatus(control *controlplane.Server, typeURL string) controlplane.TypeStatus {
	c.t.Helper()
	c.fence()
	return statusOf(c.t, control, typeURL)
}

func statusOf(t testing.TB, control *controlplane.Server, typeURL string) controlplane.TypeStatus {
	t.Helper()
	for _, cl := range control.Clients() {
		for _, ts := range cl.Types {
			if ts.TypeURL == typeURL {
				return ts
			}
		}
	}
	t.Fatalf("no client has asked for %s", typeURL)
	return controlplane.TypeStatus{}
}
