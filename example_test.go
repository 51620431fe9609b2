package dynxds_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// startMesh starts a backend and an xDS server that leads "echo.example.com" there. It
// returns the bootstrap of a client.
func startMesh(node string) (bootstrap []byte, stop func()) {
	backend, err := testutils.NewBackend("backend-1")
	if err != nil {
		log.Fatal(err)
	}
	server, err := testutils.NewFakeServer()
	if err != nil {
		log.Fatal(err)
	}
	if err := server.TryUpdate(func(tx *testutils.Tx) {
		tx.Set(
			xdsmsg.DefaultListener("echo.example.com", "routes"),
			xdsmsg.RouteConfig("routes", "echo.example.com", xdsmsg.PrefixRoute("", "echo")),
			xdsmsg.EDSCluster("echo", ""),
			xdsmsg.SimpleEndpoints("echo", backend.Addr()),
		)
	}); err != nil {
		log.Fatal(err)
	}
	return server.Bootstrap(node), func() { server.Close(); backend.Close() }
}

// tag is an interceptor of the program's: routes could match the header that it adds.
func tag(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoker(metadata.AppendToOutgoingContext(ctx, "team", "search"), method, req, reply, cc, opts...)
}

// A channel with a bootstrap in memory: the program's own options, then those of dynxds.
func ExampleDialOptions() {
	bootstrap, stop := startMesh("dial-options")
	defer stop()

	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(tag),
	}
	opts = append(opts, dynxds.DialOptions(dynxds.WithBootstrap(bootstrap))...)
	conn, err := grpc.NewClient("xds:///echo.example.com", opts...)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = testgrpc.NewTestServiceClient(conn).EmptyCall(ctx, new(testgrpc.Empty))
	fmt.Println("RPC:", err)
	// Output:
	// RPC: <nil>
}

// The blank import (or this package for any reason), and another bootstrap for one
// channel. Channels has the state of the channel, Dump that of its client.
func ExampleNewBuilder() {
	bootstrap, stop := startMesh("new-builder")
	defer stop()

	builder, err := dynxds.NewBuilder(bootstrap)
	if err != nil {
		log.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///echo.example.com",
		grpc.WithResolvers(builder), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := testgrpc.NewTestServiceClient(conn).EmptyCall(ctx, new(testgrpc.Empty)); err != nil {
		log.Fatal(err)
	}

	for _, channel := range dynxds.Channels() {
		fmt.Println(channel.Target, channel.Mode, channel.Mode == dynxds.ModeXDS)
	}
	for _, client := range dynxds.Dump() {
		if client.Node.GetId() != "new-builder" {
			continue // another example's, which is ending
		}
		for _, resource := range client.Resources {
			fmt.Println(resource.TypeURL, resource.Name, resource.State)
		}
	}
	// Output:
	// xds:///echo.example.com xDS true
	// type.googleapis.com/envoy.config.cluster.v3.Cluster echo ACKED
	// type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment echo ACKED
	// type.googleapis.com/envoy.config.listener.v3.Listener echo.example.com ACKED
	// type.googleapis.com/envoy.config.route.v3.RouteConfiguration routes ACKED
}

// A program that was assigned shards uses the variants of the clusters that are for them.
func ExampleSetConstraints() {
	shards, err := dynparam.New(dynparam.Require("shards", dynparam.InRanges(
		dynparam.Range{Min: 4, Max: 6}, dynparam.Range{Min: 11, Max: 15})))
	if err != nil {
		log.Fatal(err)
	}
	clusters, err := dynparam.NewByType(map[string]dynparam.Constraints{"envoy.config.cluster.v3.Cluster": shards})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(dynxds.SetConstraints(clusters), clusters.For("envoy.config.cluster.v3.Cluster"))

	// Remove them.
	fmt.Println(dynxds.SetConstraints(dynparam.ByType{}))
	// Output:
	// <nil> {shards in [4-6] or [11-15]}
	// <nil>
}

// A trace of one RPC: where it was routed, and the endpoint that answered.
func ExampleWithTrace() {
	bootstrap, stop := startMesh("trace")
	defer stop()
	conn, err := grpc.NewClient("xds:///echo.example.com", append(dynxds.DialOptions(dynxds.WithBootstrap(bootstrap)),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ctx = dynxds.WithTrace(ctx, &dynxds.Trace{
		WaitedForConfig: func(w dynxds.TraceConfigWait) { fmt.Println("configured:", w.Target, w.Err) },
		Routed:          func(r dynxds.TraceRoute) { fmt.Println("routed:", r.Method, "to", r.Cluster) },
		Picked:          func(p dynxds.TracePick) { fmt.Println("picked:", p.Cluster, p.Zone, p.Err) },
		AttemptEnded:    func(a dynxds.TraceAttempt) { fmt.Println("attempt", a.Number, "ended:", a.Err) },
	})
	if _, err := testgrpc.NewTestServiceClient(conn).EmptyCall(ctx, new(testgrpc.Empty)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// configured: xds:///echo.example.com <nil>
	// routed: /grpc.testing.TestService/EmptyCall to echo
	// picked: echo zone <nil>
	// attempt 1 ended: <nil>
}
