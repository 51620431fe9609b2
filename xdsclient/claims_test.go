package xdsclient

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// A version beyond the limit is not sent back, in replies or on the next stream.
func TestLongVersionsAreNotSentBack(t *testing.T) {
	long, longest := strings.Repeat("v", bounds.EchoedVersion+1), strings.Repeat("v", bounds.EchoedVersion)
	t.Run("SotW", func(t *testing.T) {
		overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
			a, _ := listen(t, c, types.clusters, "a")
			s := server.asked()
			s.send(types.clusters, longest, "n1", cluster("a", "x"))
			check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, version: longest, nonce: "n1"})
			s.send(types.clusters, long, "n2", cluster("a", "y"))
			check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, nonce: "n2"})
			a.cluster("x")
			a.cluster("y")
			s.breakOff()
			check(t, server.stream().request(), want{typ: types.clusters, names: []string{"a"}, node: true})
		})
	})
	t.Run("delta", func(t *testing.T) {
		overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
			listenBoth(t, c, types.clusters, "a", "b")
			s := server.askedDelta()
			s.send(types.clusters, "n1", has("a", long, cluster("a", "x")), has("b", longest, cluster("b", "x")))
			s.request()
			s.end <- status.Error(codes.Unavailable, "restart")
			d := server.delta()
			d.expect(deltaWant{typ: types.clusters, sub: []string{"a", "b"}, initial: map[string]string{"a": "", "b": longest}, node: true})
		})
	})
}

// Every reply repeats the nonce. One that is as long as a message ends the stream.
func TestLongNonceEndsTheStream(t *testing.T) {
	overEachProtocol(t, nil, func(v *protocolTest) {
		a := v.listen("a")
		v.connect()
		v.server.open()
		k := v.c.channels[channelKey{server: v.c.config.Servers[0].Key()}]
		message := &discoveryv3.DiscoveryResponse{TypeUrl: v.types.clusters.TypeURL, Nonce: strings.Repeat("n", bounds.Nonce+1)}
		bytes, err := proto.Marshal(message)
		xdstest.NoError(t, err)
		if _, _, err := k.Receive(bytes); err == nil || !strings.Contains(err.Error(), "nonce of 65537 bytes") {
			t.Errorf("got error %v, want one about the nonce", err)
		}
		a.silent()
	})
}

// answering is a delta server that answers each subscription whose version the client does not claim.
type answering struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	requests chan *discoveryv3.DeltaDiscoveryRequest
}

func (s *answering) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	for nonce := 0; ; nonce++ {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case s.requests <- r:
		case <-stream.Context().Done():
			return nil
		}
		response := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: r.GetTypeUrl(), Nonce: fmt.Sprint(nonce)}
		for _, name := range r.GetResourceNamesSubscribe() {
			if r.GetInitialResourceVersions()[name] != "" {
				continue
			}
			value, err := anyOf(cluster(name, "x"))
			if err != nil {
				return err
			}
			response.Resources = append(response.Resources, &discoveryv3.Resource{Name: name, Version: strings.Repeat("v", 40), Resource: value})
		}
		if len(response.Resources) > 0 {
			if err := stream.Send(response); err != nil {
				return err
			}
		}
	}
}

// cutListener can close the connections that it has accepted.
type cutListener struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *cutListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, conn)
	return conn, err
}

func (l *cutListener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.conns {
		conn.Close()
	}
	l.conns = nil
}

// countdown is a watcher that counts values until there are none left.
type countdown struct {
	left int
	over chan struct{}
}

func (c *countdown) ResourceChanged(value any, _ error, done func()) {
	if value != nil {
		if c.left--; c.left == 0 {
			close(c.over)
		}
	}
	done()
}

func (c *countdown) AmbientError(_ error, done func()) { done() }

// 30,000 names of ordinary length and their versions are more than the 4 MiB that servers accept. After a reconnect
// the client asks for all of them, and claims the versions that fit into the first request.
func TestManyNamesFitIntoRequests(t *testing.T) {
	t.Parallel()
	const n = 30_000
	types, service := newTestTypes(), &answering{requests: make(chan *discoveryv3.DeltaDiscoveryRequest)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	wire := &cutListener{Listener: listener}
	server := grpc.NewServer(grpc.WaitForHandlers(true)) // with gRPC's limit of 4 MiB
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, service)
	go func() { _ = server.Serve(wire) }()
	t.Cleanup(server.Stop)
	c, err := New(parseBootstrap(t, listener.Addr().String(), testutils.ServerFeatures("delta")), WithBackoff(quick))
	xdstest.NoError(t, err)
	t.Cleanup(c.Close)
	all := &countdown{left: n, over: make(chan struct{})}
	c.Batch(func() {
		for i := range n {
			c.Watch(types.clusters, fmt.Sprintf("%s/cluster-%06d", strings.Repeat("n", 60), i), all)
		}
	})
	ctx := testutils.Context(t)
	// listed waits until the server was asked for all names, and returns how many versions it was told.
	listed := func() (versions int) {
		t.Helper()
		for names := 0; names < n; {
			select {
			case r := <-service.requests:
				names, versions = names+len(r.GetResourceNamesSubscribe()), versions+len(r.GetInitialResourceVersions())
				if size := proto.Size(r); size > bounds.Request {
					t.Errorf("a request of %d bytes, want %d at most", size, bounds.Request)
				}
			case <-ctx.Done():
				t.Fatalf("the server was asked for %d of %d names", names, n)
			}
		}
		return versions
	}
	// drain lets the server read what the client answers.
	drain := func(until <-chan struct{}) {
		for {
			select {
			case <-service.requests:
			case <-until:
				return
			}
		}
	}
	listed()
	drain(all.over)
	wire.cut()
	for versions := 0; versions == 0; {
		versions = listed()
		if versions >= n {
			t.Errorf("the client claims to have %d resources of %d in one request", versions, n)
		}
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		c.Close()
	}()
	drain(stopped)
}
