package xdsclient

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// sink is an ADS server that reads and never answers.
type sink struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	// names counts the names in all requests, and last is how many the last one
	// had.
	names, last atomic.Int64
	// changed has room for one.
	changed chan struct{}
}

func newSink() *sink { return &sink{changed: make(chan struct{}, 1)} }

func (s *sink) StreamAggregatedResources(wire discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	for {
		r, err := wire.Recv()
		if err != nil {
			return err
		}
		s.names.Add(int64(len(r.GetResourceNames())))
		s.last.Store(int64(len(r.GetResourceNames())))
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

// client starts the server and makes a client of it.
func (s *sink) client(t testing.TB) *XDSClient {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, s)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	c, err := New(parseBootstrap(t, "passthrough:///sink"),
		WithDialOptions(grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) })))
	xdstest.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		server.Stop()
		<-served
	})
	return c
}

// until waits until the server was asked for n resources.
func (s *sink) until(t testing.TB, n int) {
	t.Helper()
	deadline := time.After(patience)
	for s.last.Load() != int64(n) {
		select {
		case <-s.changed:
		case <-deadline:
			t.Fatalf("the last request has %d names, want %d", s.last.Load(), n)
		}
	}
}

// Ten thousand watches that are started in one go are one request.
func TestTenThousandWatchesInOneGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 10_000
		types, server := newTestTypes(), newScript(t)
		c := server.client()
		heard := &counter{}
		stops := make([]func(), n)
		for i := range stops {
			stops[i] = c.Watch(types.clusters, fmt.Sprintf("c%05d", i), heard)
		}
		s := server.stream()
		if got := len(s.request().GetResourceNames()); got != n {
			t.Fatalf("the first request has %d names, want %d", got, n)
		}
		s.quiet()
		for _, stop := range stops {
			stop()
		}
		s.gone()
	})
}

// What a watch costs does not depend on how many there are.
func BenchmarkWatches(b *testing.B) {
	types := newTestTypes()
	for _, n := range []int{1_000, 10_000, 100_000} {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("outbound|80||service-%06d.example.com", i)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			server := newSink()
			c := server.client(b)
			stopFirst := c.Watch(types.clusters, "first", &counter{})
			server.until(b, 1)
			b.ReportAllocs()
			start := server.names.Load()
			var watching time.Duration
			for b.Loop() {
				stops := make([]func(), n)
				began := time.Now()
				for i, name := range names {
					stops[i] = c.Watch(types.clusters, name, &counter{})
				}
				watching += time.Since(began)
				server.until(b, n+1)
				for _, stop := range stops {
					stop()
				}
				server.until(b, 1)
			}
			b.ReportMetric(float64(server.names.Load()-start)/float64(b.N*n), "names-sent/watch")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/watch")
			b.ReportMetric(float64(watching.Nanoseconds())/float64(b.N*n), "ns/Watch()")
			stopFirst()
		})
	}
}

// A switch between servers costs time in proportion to the resources of the
// authority.
func BenchmarkSwitch(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			k := newCore(b)
			lower := *k.c.config.Servers[0]
			types := newTestTypes()
			k.watchClusters(types, n)
			k.answer()
			k.push(sotwPush(b, types.clusters, n, -1, ""))
			k.c.Watch(types.clusters, "missing", &counter{})
			k.c.mu.Lock()
			defer k.c.unlock()
			a := k.c.authorities[authorityKey{}]
			a.servers = append(a.servers, &lower)
			b.ReportAllocs()
			for b.Loop() {
				ch := newManagementServer(k.c, &lower, "")
				k.c.channels[channelKey{server: lower.Key()}] = ch
				k.channel.link.Restart()
				k.channel.link.Ended(errTest, "")
				a.serverDown(k.channel, true)
				if a.active() != ch || ch.watched != n+1 {
					b.Fatalf("%d of %d resources are subscribed to at the lower server", ch.watched, n+1)
				}
				a.moveUp(0, nil)
				if !ch.link.Closed() {
					b.Fatal("the lower server was not left")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/resource")
			k.channel.link = ads.Link{}
			k.channel.link.Opened()
		})
	}
}
