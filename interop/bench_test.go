package interop_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/gocp"
)

// routeCounts are the lengths of the route tables that are measured. The route
// that serves the RPC is the last.
var routeCounts = []int{1, 100, 1_000, 10_000}

// plain is the peer without xDS.
const plain = "plain"

var peers = []string{plain, grpcGo, ours}

// dialPeer is a channel to the backend.
func dialPeer(t testing.TB, peer string, control *gocp.Server, backend string) *grpc.ClientConn {
	if peer == plain {
		return dial(t, nil, "passthrough:///"+backend, grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))
	}
	return dial(t, builderOf(t, peer, control.Bootstrap()), "xds:///"+service)
}

// BenchmarkUnary is a unary RPC over loopback, client and server in one
// process, on each peer: one at a time, and on all processors at once.
func BenchmarkUnary(b *testing.B) {
	onEachPeer(b, routeCounts, func(b *testing.B, client testpb.TestServiceClient) {
		b.Run("sequential", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				call(b, client)
			}
		})
		b.Run("parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					call(b, client)
				}
			})
		})
	})
}

// BenchmarkStream is a bidirectional stream with one message each way, from its
// beginning to its end.
func BenchmarkStream(b *testing.B) {
	onEachPeer(b, routeCounts, func(b *testing.B, client testpb.TestServiceClient) {
		b.ReportAllocs()
		for b.Loop() {
			stream := openStream(b, client)
			exchange(b, stream)
			xdstest.NoError(b, stream.CloseSend())
			if _, err := stream.Recv(); err != io.EOF {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkMessage is one message each way on a stream that is open.
func BenchmarkMessage(b *testing.B) {
	onEachPeer(b, []int{1}, func(b *testing.B, client testpb.TestServiceClient) {
		stream := openStream(b, client)
		b.ReportAllocs()
		for b.Loop() {
			exchange(b, stream)
		}
	})
}

// BenchmarkStart is a channel from dialling to the end of its first RPC. Nothing
// is left of the channel before, its xDS client included.
func BenchmarkStart(b *testing.B) {
	control, backend := benchWorld(b, 1)
	for _, p := range peers {
		b.Run("peer="+p, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				cc := dialPeer(b, p, control, backend)
				call(b, testpb.NewTestServiceClient(cc))
				cc.Close()
			}
		})
	}
}

// onEachPeer runs a benchmark on a channel of each peer that is connected, for
// each length of the route table.
func onEachPeer(b *testing.B, lengths []int, run func(*testing.B, testpb.TestServiceClient)) {
	for _, n := range lengths {
		b.Run(fmt.Sprintf("routes=%d", n), func(b *testing.B) {
			control, backend := benchWorld(b, n)
			for _, p := range peers {
				b.Run("peer="+p, func(b *testing.B) {
					client := testpb.NewTestServiceClient(dialPeer(b, p, control, backend))
					call(b, client)
					run(b, client)
				})
			}
		})
	}
}

func openStream(b *testing.B, client testpb.TestServiceClient) testpb.TestService_FullDuplexCallClient {
	b.Helper()
	stream, err := client.FullDuplexCall(b.Context())
	xdstest.NoError(b, err)
	return stream
}

func exchange(b *testing.B, stream testpb.TestService_FullDuplexCallClient) {
	xdstest.NoError(b, stream.Send(&testpb.StreamingOutputCallRequest{}))
	if _, err := stream.Recv(); err != nil {
		b.Fatal(err)
	}
}

// allocationBudget is how many allocations a unary RPC of dynxds may make over
// one on a plain round_robin channel, however many routes there are.
const allocationBudget = 5

// The budget holds for one route and for 10,001.
func TestAllocationsPerUnaryRPC(t *testing.T) {
	for _, n := range []int{1, 10_001} {
		t.Run(fmt.Sprintf("%d routes", n), func(t *testing.T) {
			control, backend := benchWorld(t, n)
			without := allocations(t, dialPeer(t, plain, control, backend))
			with := allocations(t, dialPeer(t, ours, control, backend))
			t.Logf("allocations per RPC: plain %v, dynxds %v", without, with)
			if with-without > allocationBudget {
				t.Errorf("%v allocations over a plain channel, want at most %d", with-without, allocationBudget)
			}
		})
	}
}

// The interceptors that dynxds adds to channels by their scheme cost a channel of gRPC-Go's xds no allocation. The
// schemes are not "xds", for which gRPC itself makes four allocations.
func TestPassingThroughAllocatesNothing(t *testing.T) {
	control, _ := benchWorld(t, 1)
	under := func(scheme string) float64 {
		return allocations(t, dial(t, renamed{builderOf(t, grpcGo, control.Bootstrap()), scheme}, scheme+":///"+service))
	}
	without, with := under("untouched"), under("dynxds")
	if with > without {
		t.Errorf("an RPC makes %v allocations, without the interceptors of dynxds %v", with, without)
	}
}

// renamed is a builder under another scheme.
type renamed struct {
	grpcresolver.Builder
	scheme string
}

func (r renamed) Scheme() string { return r.scheme }

// allocations is how many allocations the measured RPC makes on the channel.
func allocations(t *testing.T, cc *grpc.ClientConn) float64 {
	t.Helper()
	if raceDetector {
		t.Skip("the race detector allocates too")
	}
	client := testpb.NewTestServiceClient(cc)
	call(t, client) // Connects.
	return testing.AllocsPerRun(5_000, func() { call(t, client) })
}

// call makes the RPC that is measured.
func call(t testing.TB, client testpb.TestServiceClient) {
	if _, err := client.UnaryCall(context.Background(), &testpb.SimpleRequest{ResponseSize: 16}); err != nil {
		t.Fatal(err)
	}
}

// benchWorld is a control plane with a table of n routes, and the address of
// the backend that the last of them leads to.
func benchWorld(t testing.TB, n int) (control *gocp.Server, backend string) {
	backend = leanBackend(t)
	control = gocp.Start(t, gocp.AnyNames)
	var table []*routepb.Route
	for i := range n - 1 {
		table = append(table, xdsmsg.PathRoute(fmt.Sprintf("/some.package.Service%d/Method", i), "cluster"))
	}
	table = append(table, xdsmsg.PrefixRoute("/", "cluster"))
	control.Set(t, listener("routes"), xdsmsg.RouteConfig("routes", service, table...),
		cluster("cluster", "cluster"), xdsmsg.SimpleEndpoints("endpoints-of-cluster", backend))
	return control, backend
}

// leanBackend is a server that does as little as possible, since its cost
// is part of every figure.
func leanBackend(t testing.TB) (addr string) { return serveTest(t, lean{}) }

// serveTest serves the service on loopback.
func serveTest(t testing.TB, service testpb.TestServiceServer) (addr string) {
	t.Helper()
	return serveUntilEnd(t, func(s grpc.ServiceRegistrar) { testpb.RegisterTestServiceServer(s, service) }, func() {})
}

type lean struct {
	testpb.UnimplementedTestServiceServer
}

func (lean) FullDuplexCall(stream testpb.TestService_FullDuplexCallServer) error {
	for {
		if _, err := stream.Recv(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

func (lean) UnaryCall(_ context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{Payload: &testpb.Payload{Body: make([]byte, r.GetResponseSize())}}, nil
}
