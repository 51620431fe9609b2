package e2e_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	_ "github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) {
	if code, ok := runChild(); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(underZone{overEachVariant{m}})
}

// variant is the feature of the variant of the xDS protocol that tests run over.
// It changes between two runs of all tests only.
var variant string

// overEachVariant runs all tests over SotW and then over delta.
type overEachVariant struct{ m *testing.M }

func (o overEachVariant) Run() int {
	for _, variant = range []string{"", "delta"} {
		if code := o.m.Run(); code != 0 {
			fmt.Printf("the tests failed over variant %q of the xDS protocol\n", variant)
			return code
		}
	}
	return 0
}

// service is the target that most tests dial; its resources are of the same
// name.
const service = "echo.example.com"

// mesh is a control plane on loopback and what a channel needs to reach it.
type mesh struct {
	*xdstest.Server
	t testing.TB
	// features are the server's features in the bootstrap.
	features []string
}

func newMesh(t testing.TB, features ...string) *mesh {
	t.Helper()
	if variant != "" {
		features = append(features, variant)
	}
	return &mesh{Server: xdstest.StartServer(t, linkOf(t)...), t: t, features: features}
}

// set puts resources into the store in one update.
func (m *mesh) set(resources ...proto.Message) {
	m.t.Helper()
	m.Set(m.t, resources...)
}

// bootstrap returns a bootstrap for the mesh. The node id is the test's name.
func (m *mesh) bootstrap(opts ...testutils.BootstrapOption) []byte {
	return m.Bootstrap(m.t.Name(), append([]testutils.BootstrapOption{testutils.ServerFeatures(m.features...)}, opts...)...)
}

// asks matches the request that adds a name to those of a type that the client asks
// for, over either variant.
func asks(typeURL, added string, others ...string) xdstest.Match {
	if variant == "delta" {
		return xdstest.Subscribing(typeURL, added)
	}
	return xdstest.ForNames(typeURL, append(others, added)...)
}

// keepSilent has the control plane say nothing of what it does not have, over delta
// as over SotW. Otherwise RPCs that need it would fail at once over delta.
func (m *mesh) keepSilent() {
	m.OnDeltaResponse(func(_ uint64, resp *discoverypb.DeltaDiscoveryResponse) *discoverypb.DeltaDiscoveryResponse {
		resp.RemovedResources, resp.RemovedResourceNames = nil, nil
		return resp
	})
}

// The type URLs of the resources that tests delete or wait for.
const (
	listenerURL  = "type.googleapis.com/envoy.config.listener.v3.Listener"
	routesURL    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	clusterURL   = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointsURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// serve configures the service with one cluster, of the given name, and one
// route to it.
func (m *mesh) serve(name, cluster string, backends ...*testutils.Backend) {
	m.t.Helper()
	m.set(append(chain(name, xdsmsg.PrefixRoute("", cluster)), clusterOf(cluster, backends...)...)...)
}

// chain is a Listener and a RouteConfiguration of the same name.
func chain(name string, routes ...*routepb.Route) []proto.Message {
	return []proto.Message{
		xdsmsg.DefaultListener(name, name),
		xdsmsg.RouteConfig(name, name, routes...),
	}
}

// clusterOf is an EDS cluster and its endpoints.
func clusterOf(name string, backends ...*testutils.Backend) []proto.Message {
	addrs := make([]string, len(backends))
	for i, b := range backends {
		addrs[i] = b.Addr()
	}
	return []proto.Message{xdsmsg.EDSCluster(name, ""), xdsmsg.SimpleEndpoints(name, addrs...)}
}

// builder returns a resolver builder for the mesh.
func (m *mesh) builder() grpcresolver.Builder {
	m.t.Helper()
	b, err := resolver.NewBuilder(m.bootstrap())
	if err != nil {
		m.t.Fatal(err)
	}
	return b
}

// dial opens a channel to the target through the mesh.
func (m *mesh) dial(target string, opts ...grpc.DialOption) *grpc.ClientConn {
	m.t.Helper()
	return dial(m.t, target, append([]grpc.DialOption{grpc.WithResolvers(m.builder())}, opts...)...)
}

var dialInsecure = grpc.WithTransportCredentials(insecure.NewCredentials())

func dial(t testing.TB, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(target, append([]grpc.DialOption{dialInsecure}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

// kind is one of the four kinds of RPC.
type kind string

const (
	unary           kind = "unary"
	serverStreaming kind = "server streaming"
	clientStreaming kind = "client streaming"
	bidiStreaming   kind = "bidirectional streaming"
)

var kinds = []kind{unary, serverStreaming, clientStreaming, bidiStreaming}

const (
	unaryMethod = "/grpc.testing.TestService/UnaryCall"
	emptyMethod = "/grpc.testing.TestService/EmptyCall"
)

// call makes one whole RPC and returns the id of the backend that answered.
func call(ctx context.Context, cc *grpc.ClientConn, k kind, opts ...grpc.CallOption) (string, error) {
	client := testgrpc.NewTestServiceClient(cc)
	if k == unary {
		var header metadata.MD
		_, err := client.UnaryCall(ctx, new(testgrpc.SimpleRequest), append(opts, grpc.Header(&header))...)
		return backendID(header), err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	switch k {
	case serverStreaming:
		request := &testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}, {Size: 2}}}
		s, err := client.StreamingOutputCall(ctx, request, opts...)
		if err != nil {
			return "", err
		}
		return finish(s, 2, func() error { _, err := s.Recv(); return err })
	case clientStreaming:
		s, err := client.StreamingInputCall(ctx, opts...)
		if err != nil {
			return "", err
		}
		for range 2 {
			if err := s.Send(new(testgrpc.StreamingInputCallRequest)); err != nil {
				break // CloseAndRecv has the reason.
			}
		}
		if _, err = s.CloseAndRecv(); err != nil {
			return "", err
		}
		header, err := s.Header()
		return backendID(header), err
	default:
		s, err := client.FullDuplexCall(ctx, opts...)
		if err != nil {
			return "", err
		}
		request := &testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}}}
		for range 2 {
			if err := s.Send(request); err != nil {
				break // Recv has the reason.
			}
			if _, err := s.Recv(); err != nil {
				return "", err
			}
		}
		s.CloseSend()
		return finish(s, 0, func() error { _, err := s.Recv(); return err })
	}
}

// finish reads n messages and the end of the stream.
func finish(s grpc.ClientStream, n int, recv func() error) (string, error) {
	for range n {
		if err := recv(); err != nil {
			return "", err
		}
	}
	if err := recv(); err != io.EOF {
		return "", fmt.Errorf("after the last message: %w", err)
	}
	header, err := s.Header()
	return backendID(header), err
}

func backendID(header metadata.MD) string {
	return strings.Join(header.Get(testutils.BackendIDHeader), ",")
}

// mustReach makes an RPC and checks which backend answers it.
func mustReach(t testing.TB, cc *grpc.ClientConn, k kind, backend *testutils.Backend) {
	t.Helper()
	got, err := call(testutils.Context(t), cc, k, grpc.WaitForReady(true))
	if err != nil {
		t.Fatalf("%s RPC: %v", k, err)
	}
	if got != backend.ID() {
		t.Errorf("%s RPC was answered by %q, want %q", k, got, backend.ID())
	}
}

// mustFail makes a unary RPC and checks how it fails.
func mustFail(t testing.TB, cc *grpc.ClientConn, texts ...string) {
	t.Helper()
	_, err := call(testutils.Context(t), cc, unary)
	checkStatus(t, err, codes.Unavailable, texts...)
}

func checkStatus(t testing.TB, err error, code codes.Code, texts ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("status code %v, want %v: %v", status.Code(err), code, err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error does not mention %q:\n%v", text, err)
		}
	}
}

// load is constant traffic of every kind on a channel.
type load struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	failed atomic.Int64
	total  atomic.Int64

	mu      sync.Mutex
	errs    []string
	seen    map[string]int // RPCs by backend since the last reset
	changed chan struct{}
}

// startLoad runs one loop for each of the kinds until the load is stopped.
func startLoad(t testing.TB, cc *grpc.ClientConn) *load {
	t.Helper()
	if !isUnder(t, loopback) && !isUnder(t, slowLink) {
		t.Fatal("a test of which no RPC fails has to run over links with and without latency: see overLinks")
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{cancel: cancel, seen: map[string]int{}, changed: make(chan struct{})}
	for _, k := range kinds {
		l.wg.Go(func() {
			for ctx.Err() == nil {
				// The RPC's own context: stopping the load lets it end.
				id, err := call(context.Background(), cc, k)
				l.record(k, id, err)
			}
		})
	}
	t.Cleanup(func() { cancel(); l.wg.Wait() })
	return l
}

func (l *load) record(k kind, id string, err error) {
	l.total.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed.Add(1)
		if len(l.errs) < 5 {
			l.errs = append(l.errs, fmt.Sprintf("%s: %v", k, err))
		}
		return
	}
	l.seen[id]++
	close(l.changed)
	l.changed = make(chan struct{})
}

// await returns when every one of the backends, and no other, has answered
// RPCs of late: n more of them in a row.
func (l *load) await(t testing.TB, backends ...*testutils.Backend) {
	t.Helper()
	ctx := testutils.Context(t)
	var want []string
	for _, b := range backends {
		want = append(want, b.ID())
	}
	slices.Sort(want)
	for {
		l.mu.Lock()
		clear(l.seen)
		var got []string
		for n := 0; n < 40; {
			changed := l.changed
			l.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("RPCs were not answered by %v alone; last by %v; failures: %v", want, got, l.errs)
			}
			l.mu.Lock()
			n = 0
			got = got[:0]
			for id, count := range l.seen {
				n += count
				got = append(got, id)
			}
		}
		l.mu.Unlock()
		slices.Sort(got)
		if slices.Equal(got, want) {
			return
		}
	}
}

// stop ends the load and checks that no RPC failed.
func (l *load) stop(t testing.TB) {
	t.Helper()
	l.cancel()
	l.wg.Wait()
	if n := l.failed.Load(); n > 0 {
		t.Errorf("%d of %d RPCs failed, for example:\n%s", n, l.total.Load(), strings.Join(l.errs, "\n"))
	}
}
