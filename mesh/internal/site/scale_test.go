package site

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/meshroute"
	twinpb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// scale is the size of a mesh.
type scale struct{ services, policies, clients int }

var full = scale{services: 1000, policies: 2000, clients: 10_000}

// Every service has a policy of its owner, which sends requests to v1, and one of a
// consumer, the service after it, which sends its own to v2.
func (s scale) write(tb testing.TB, dir string) {
	tb.Helper()
	for i := range s.services {
		text := fmt.Sprintf(`
kind: Service
name: service-%d
endpoints:
- {address: "10.%d.%d.1:80", tags: {version: v1}}
- {address: "10.%d.%d.2:80", tags: {version: v2}}
`, i, i/256, i%256, i/256, i%256)
		writeFile(tb, dir, fmt.Sprintf("service-%d.yaml", i), text)
	}
	for i := range s.policies {
		version := "v1"
		if i >= s.services {
			version = "v2"
		}
		s.writePolicy(tb, dir, i, version)
	}
	// Files that were changed some time ago are not read again.
	yesterday := time.Now().Add(-24 * time.Hour)
	entries, err := os.ReadDir(dir)
	xdstest.NoError(tb, err)
	for _, e := range entries {
		xdstest.NoError(tb, os.Chtimes(filepath.Join(dir, e.Name()), yesterday, yesterday))
	}
}

func (s scale) writePolicy(tb testing.TB, dir string, i int, version string) {
	tb.Helper()
	to, ref := i%s.services, "{kind: Mesh}"
	if i >= s.services {
		ref = fmt.Sprintf("{kind: MeshService, name: service-%d}", (to+1)%s.services)
	}
	writeFile(tb, dir, fmt.Sprintf("policy-%d.yaml", i), fmt.Sprintf(`
kind: MeshHTTPRoute
metadata: {name: policy-%d}
spec:
  targetRef: %s
  to:
  - targetRef: {kind: MeshService, name: service-%d}
    rules:
    - matches: [{path: {type: Prefix, value: /}}]
      backendRefs: [{kind: MeshServiceSubset, name: service-%d, weight: 1, tags: {version: %s}}]
`, i, ref, to, to, version))
}

func writeFile(tb testing.TB, dir, name, text string) {
	tb.Helper()
	cmdtest.Write(tb, dir, name, strings.TrimSpace(text))
}

// crowd are clients of a control plane, on streams in memory.
type crowd struct {
	received atomic.Int64 // responses
	conns    []*grpc.ClientConn
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// quietPlane is a plane of a folder that logs nothing.
func quietPlane(opts Options) *plane {
	opts.Serve.Log = slog.New(slog.DiscardHandler)
	_ = opts.open() // only that of a store fails
	return newPlane(opts)
}

// newCrowd connects clients, each of one service and subscribed to the routes of the
// service before it, and returns when every one has these.
func newCrowd(b testing.TB, p *plane, s scale, join joining) *crowd {
	b.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	p.ads.Register(server)
	ctx, cancel := context.WithCancel(context.Background())
	c := &crowd{cancel: cancel}
	c.running.Go(func() { _ = server.Serve(listener) })
	for range min(100, s.clients) {
		conn, err := grpc.NewClient("passthrough:///crowd", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		xdstest.NoError(b, err)
		c.conns = append(c.conns, conn)
	}
	b.Cleanup(func() {
		cancel()
		for _, conn := range c.conns {
			conn.Close()
		}
		p.ads.Close()
		server.Stop()
		c.running.Wait()
	})
	for i := range s.clients {
		service := i % s.services
		me, to := fmt.Sprintf("service-%d", service), fmt.Sprintf("service-%d", (service+s.services-1)%s.services)
		metadata, err := structpb.NewStruct(map[string]any{"service": me})
		xdstest.NoError(b, err)
		next, err := join(ctx, c.conns[i%len(c.conns)], &corepb.Node{Id: fmt.Sprint(i), Metadata: metadata}, me, to)
		xdstest.NoError(b, err)
		c.running.Go(func() {
			for next() == nil {
				c.received.Add(1)
			}
		})
	}
	c.wait(b, int64(s.clients))
	return c
}

// joining connects one client, and returns how it receives a response and acknowledges
// it.
type joining func(ctx context.Context, conn *grpc.ClientConn, node *corepb.Node, service, to string) (next func() error, err error)

// joinSotW is for clients of plain names, whose variants are chosen by node.
func joinSotW(ctx context.Context, conn *grpc.ClientConn, node *corepb.Node, _, to string) (func() error, error) {
	stream, err := discoverypb.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	request := &discoverypb.DiscoveryRequest{Node: node, TypeUrl: meshroute.RouteConfigurationType, ResourceNames: []string{to}}
	next := func() error {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		request.Node, request.VersionInfo, request.ResponseNonce = nil, response.GetVersionInfo(), response.GetNonce()
		return stream.Send(request)
	}
	return next, stream.Send(request)
}

// joinDelta is for clients of an authority, over delta and with locators (xRFC TP2).
func joinDelta(ctx context.Context, conn *grpc.ClientConn, node *corepb.Node, service, to string) (func() error, error) {
	wire, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources")
	if err != nil {
		return nil, err
	}
	stream := &grpc.GenericClientStream[twinpb.DeltaDiscoveryRequest, twinpb.DeltaDiscoveryResponse]{ClientStream: wire}
	constraints, err := meshroute.ConstraintsFor(meshroute.Client{Service: service}, []string{meshpolicy.ServiceKey})
	if err != nil {
		return nil, err
	}
	next := func() error {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		return stream.Send(&twinpb.DeltaDiscoveryRequest{TypeUrl: meshroute.RouteConfigurationType, ResponseNonce: response.GetNonce()})
	}
	return next, stream.Send(&twinpb.DeltaDiscoveryRequest{
		Node: node, TypeUrl: meshroute.RouteConfigurationType,
		ResourceLocatorsSubscribe: []*twinpb.ResourceLocator{{
			Name:                        "xdstp://mesh/envoy.config.route.v3.RouteConfiguration/" + to,
			DynamicParameterConstraints: constraints.For(meshroute.RouteConfigurationType).ToProto(),
		}},
	})
}

// wait returns when n responses have come in all.
func (c *crowd) wait(b testing.TB, n int64) {
	b.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for c.received.Load() < n {
		if time.Now().After(deadline) {
			b.Fatalf("%d responses after two minutes, want %d", c.received.Load(), n)
		}
		runtime.Gosched()
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// From files to a full store.
func BenchmarkLoad(b *testing.B) {
	dir := b.TempDir()
	full.write(b, dir)
	for b.Loop() {
		xdstest.NoError(b, quietPlane(Options{Dir: dir}).load(b.Context()))
	}
}

// A poll of an unchanged folder.
func BenchmarkReloadOfNothing(b *testing.B) {
	dir := b.TempDir()
	full.write(b, dir)
	p := quietPlane(Options{Dir: dir})
	xdstest.NoError(b, p.load(b.Context()))
	for b.Loop() {
		xdstest.NoError(b, p.load(b.Context()))
	}
}

// From the file of one policy to the last of its clients, while 10,000 are connected. It is a consumer's
// policy, for a thousandth of them: no other client is sent anything.
func BenchmarkReloadOfOnePolicy(b *testing.B) {
	b.Run("SotW by nodes", func(b *testing.B) { benchmarkReload(b, "", joinSotW) })
	b.Run("delta by locators", func(b *testing.B) { benchmarkReload(b, "mesh", joinDelta) })
}

func benchmarkReload(b *testing.B, authority string, join joining) {
	dir := b.TempDir()
	full.write(b, dir)
	empty := heap()
	p := quietPlane(Options{Dir: dir, Authority: authority, RemovalDelay: controlplane.DefaultRemovalDelay})
	xdstest.NoError(b, p.load(b.Context()))
	before := heap()
	began := time.Now()
	c := newCrowd(b, p, full, join)
	connecting := time.Since(began)
	after := heap()

	versions, round := []string{"v3", "v2"}, 0
	perClient := int64(full.clients / full.services)
	for b.Loop() {
		had := c.received.Load()
		full.writePolicy(b, dir, full.services+7, versions[round%2])
		xdstest.NoError(b, p.load(b.Context()))
		c.wait(b, had+perClient)
		round++
	}
	if got, want := c.received.Load(), int64(full.clients)+int64(round)*perClient; got != want {
		b.Errorf("%d responses were sent, want %d: only clients whose variant changed", got, want)
	}
	b.ReportMetric(connecting.Seconds(), "s/connect")
	b.ReportMetric(float64(before-empty)/1e6, "MB/mesh")
	b.ReportMetric(float64(after-before)/float64(full.clients)/1e3, "kB/client")
	b.ReportMetric(float64(perClient), "clients/reload")
}
