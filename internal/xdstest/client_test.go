package xdstest_test

import (
	"context"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/goleak"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	sotw, delta = "SotW", "delta"

	ads  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
	dpds = "/envoy.service.dynamic_parameters.v3.DynamicParametersDiscoveryService/"
)

// overBoth runs a test over SotW and over delta, each with a server of its own. open opens
// an ADS stream.
func overBoth(t *testing.T, test func(ctx context.Context, t *testing.T, s *xdstest.Server, open func() client)) {
	t.Parallel()
	for _, protocol := range []string{sotw, delta} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			ctx, s := testutils.Context(t), xdstest.StartServer(t)
			test(ctx, t, s, func() client { return openADS(ctx, t, s, protocol) })
		})
	}
}

// client is the client's end of an ADS stream.
type client struct {
	grpc.ClientStream
	t        *testing.T
	protocol string
}

// openStream opens a stream on a new connection, so that no backoff of an earlier
// failure is in the way.
func openStream(ctx context.Context, t *testing.T, s *xdstest.Server, method string) grpc.ClientStream {
	t.Helper()
	conn, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	xdstest.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.WaitForReady(true))
	xdstest.NoError(t, err)
	return stream
}

func openADS(ctx context.Context, t *testing.T, s *xdstest.Server, protocol string) client {
	t.Helper()
	method := ads + "StreamAggregatedResources"
	if protocol == delta {
		method = ads + "DeltaAggregatedResources"
	}
	return client{openStream(ctx, t, s, method), t, protocol}
}

// ask sends a request of node "n" for resources, with a nonce and an error if it answers
// a response.
func (c client) ask(typeURL string, names []string, nonce string, err *statuspb.Status) {
	c.t.Helper()
	node := &corepb.Node{Id: "n"}
	if c.protocol == delta {
		c.send(&discoverypb.DeltaDiscoveryRequest{Node: node, TypeUrl: typeURL, ResourceNamesSubscribe: names, ResponseNonce: nonce, ErrorDetail: err})
		return
	}
	c.send(&discoverypb.DiscoveryRequest{Node: node, TypeUrl: typeURL, ResourceNames: names, ResponseNonce: nonce, ErrorDetail: err})
}

// clusters asks for Clusters.
func (c client) clusters(names ...string) {
	c.t.Helper()
	c.ask(xdsmsg.ClusterType, names, "", nil)
}

func (c client) send(m any) {
	c.t.Helper()
	xdstest.NoError(c.t, c.SendMsg(m))
}

// response is a response of either protocol.
type response struct {
	typeURL, nonce, version string
	resources               int
}

func (c client) receive() (response, error) {
	if c.protocol == delta {
		m := new(discoverypb.DeltaDiscoveryResponse)
		err := c.RecvMsg(m)
		return response{m.GetTypeUrl(), m.GetNonce(), "", len(m.GetResources())}, err
	}
	m := new(discoverypb.DiscoveryResponse)
	err := c.RecvMsg(m)
	return response{m.GetTypeUrl(), m.GetNonce(), m.GetVersionInfo(), len(m.GetResources())}, err
}

func (c client) mustReceive() response {
	c.t.Helper()
	resp, err := c.receive()
	xdstest.NoError(c.t, err)
	return resp
}

// mustEnd checks the status that the stream ends with.
func (c client) mustEnd(want codes.Code) {
	c.t.Helper()
	if _, err := c.receive(); status.Code(err) != want {
		c.t.Errorf("the stream ended with %v, want %v", err, want)
	}
}

func rejection(text string) *statuspb.Status {
	return &statuspb.Status{Code: int32(codes.InvalidArgument), Message: text}
}
