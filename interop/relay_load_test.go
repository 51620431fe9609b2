//go:build unix

package interop_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	upstreampb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	cachetypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

// relayLoad is a source of resources, and clients of it, each an ADS stream over delta. All are
// subscribed to the first resource, which is the one that changes. The clients decode nothing of a
// resource and keep none: what is measured is the server, and gRPC on both ends.
type relayLoad struct {
	tb   testing.TB
	size relaySize
	// set changes the resource that all clients have.
	set     func(*endpointpb.ClusterLoadAssignment)
	stop    context.CancelFunc
	ended   sync.WaitGroup
	streams []grpc.ClientStream

	// pending counts the resources that clients have yet to receive. arrived gets a value at 0. broken gets an error if a stream ends.
	pending atomic.Int64
	arrived chan struct{}
	broken  chan error
	changes uint32
}

// relaySize is how many clients there are, to how many resources each is subscribed, and of how many.
// The first client is subscribed to all of them.
type relaySize struct{ clients, each, of int }

func (s relaySize) String() string {
	return fmt.Sprintf("clients=%d/each=%d/of=%d", s.clients, s.each, s.of)
}

const (
	// streamsPerConnection is how many clients share a connection. To gRPC each is a stream, whichever
	// connection it is on.
	streamsPerConnection = 100
	// connectionsPerAddress is how many connections come from one address, which may have half of what the relay holds for all,
	// 16,000,000 subscriptions.
	connectionsPerAddress = 25
	// wave is how many clients subscribe to the rest at a time: the relay keeps 512 MiB of responses that are not read.
	wave = 500
)

// sources are what is measured, each of which returns its address and how to change a resource.
var sources = map[string]func(testing.TB, relaySize) (string, func(*endpointpb.ClusterLoadAssignment)){
	"relay": func(tb testing.TB, size relaySize) (string, func(*endpointpb.ClusterLoadAssignment)) {
		addr, update := startRelayBefore(tb, func(tx *controlplane.Tx) {
			for i := range size.of {
				tx.Set(size.resource(i, 0))
			}
		})
		return addr, func(m *endpointpb.ClusterLoadAssignment) { update(func(tx *controlplane.Tx) { tx.Set(m) }) }
	},
	"go-control-plane": startLinearCache,
}

// startRelayBefore starts a control plane and a relay before it, which speaks delta to it. It returns
// the address of the relay, and how to change what the control plane has.
func startRelayBefore(tb testing.TB, fill func(*controlplane.Tx)) (addr string, update func(func(*controlplane.Tx))) {
	store := controlplane.NewStore()
	update = func(change func(*controlplane.Tx)) {
		tb.Helper()
		_, err := store.Update(change)
		xdstest.NoError(tb, err)
	}
	update(fill)
	up := controlplane.NewServer(store, controlplane.Options{})
	_, addr = startRelay(tb, testutils.Bootstrap("relay", serveUntilEnd(tb, up.Register, up.Close),
		testutils.ServerFeatures("delta", "dynamic_parameter_constraints")), controlplane.Options{})
	return addr, update
}

// startLinearCache starts go-control-plane's server over a linear cache of a mux cache.
func startLinearCache(tb testing.TB, size relaySize) (string, func(*endpointpb.ClusterLoadAssignment)) {
	resources := map[string]cachetypes.Resource{}
	for i := range size.of {
		resources[size.name(i)] = size.resource(i, 0)
	}
	linear := cachev3.NewLinearCache(xdsmsg.EndpointType, cachev3.WithInitialResources(resources))
	mux := &cachev3.MuxCache{
		Classify:      func(r *cachev3.Request) string { return r.GetTypeUrl() },
		ClassifyDelta: func(r *cachev3.DeltaRequest) string { return r.GetTypeUrl() },
		Caches:        map[string]cachev3.Cache{xdsmsg.EndpointType: linear},
	}
	ctx, cancel := context.WithCancel(context.Background())
	server := serverv3.NewServer(ctx, mux, nil)
	addr := serveUntilEnd(tb, func(s grpc.ServiceRegistrar) {
		upstreampb.RegisterAggregatedDiscoveryServiceServer(s, server)
	}, cancel)
	return addr, func(m *endpointpb.ClusterLoadAssignment) {
		xdstest.NoError(tb, linear.UpdateResource(m.GetClusterName(), m))
	}
}

// startRelayLoad starts a source with its resources, and no client yet.
func startRelayLoad(tb testing.TB, source string, size relaySize) (*relayLoad, string) {
	addr, set := sources[source](tb, size)
	return newRelayLoad(tb, size, set), addr
}

func newRelayLoad(tb testing.TB, size relaySize, set func(*endpointpb.ClusterLoadAssignment)) *relayLoad {
	return &relayLoad{tb: tb, size: size, set: set, arrived: make(chan struct{}, 1), broken: make(chan error, size.clients)}
}

func (relaySize) name(i int) string { return fmt.Sprintf("outbound|8080||service-%05d", i) }

// resource returns a version of a resource; changes is its number.
func (s relaySize) resource(i int, changes uint32) *endpointpb.ClusterLoadAssignment {
	m := xdsmsg.SimpleEndpoints(s.name(i), "10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080")
	m.Endpoints[0].Priority = changes
	return m
}

// open opens the streams of all clients.
func (l *relayLoad) open(addr string) {
	l.tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	var conns []*grpc.ClientConn
	l.tb.Cleanup(func() {
		cancel()
		l.ended.Wait()
		for _, conn := range conns {
			conn.Close()
		}
	})
	for i := range l.size.clients {
		if i%streamsPerConnection == 0 {
			from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+len(conns)/connectionsPerAddress))}}
			conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.ForceCodecV2(countingCodec{})),
				grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return from.DialContext(ctx, "tcp", to) }))
			xdstest.NoError(l.tb, err)
			conns = append(conns, conn)
		}
		stream, err := conns[len(conns)-1].NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
			"/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources")
		xdstest.NoError(l.tb, err)
		l.streams = append(l.streams, stream)
	}
}

// expect is before the clients are sent this many resources in all.
func (l *relayLoad) expect(resources int) { l.pending.Store(int64(resources)) }

// await returns when the clients have received what is expected.
func (l *relayLoad) await() {
	l.tb.Helper()
	select {
	case <-l.arrived:
	case err := <-l.broken:
		l.tb.Fatalf("%d resources have not arrived, and a stream has ended: %v", l.pending.Load(), err)
	case <-time.After(10 * time.Minute):
		l.tb.Fatalf("%d resources have not arrived", l.pending.Load())
	}
}

// subscribe subscribes one client.
func (l *relayLoad) subscribe(client int, names []string) {
	l.tb.Helper()
	data, err := proto.Marshal(&discoverypb.DeltaDiscoveryRequest{
		Node: &corepb.Node{Id: fmt.Sprint("client-", client), Cluster: "load"}, TypeUrl: xdsmsg.EndpointType, ResourceNamesSubscribe: names,
	})
	xdstest.NoError(l.tb, err)
	xdstest.NoError(l.tb, l.streams[client].SendMsg(data))
}

// begin subscribes a client for the first time, and receives from then on.
func (l *relayLoad) begin(client int, names ...string) {
	l.tb.Helper()
	l.subscribe(client, names)
	l.ended.Go(func() { l.receive(l.streams[client]) })
}

// receive ACKs all that a client is sent.
func (l *relayLoad) receive(stream grpc.ClientStream) {
	for {
		var r counted
		if err := stream.RecvMsg(&r); err != nil {
			l.broken <- err
			return
		}
		var ack []byte
		ack = protowire.AppendTag(ack, 2, protowire.BytesType)
		ack = protowire.AppendString(ack, xdsmsg.EndpointType)
		ack = protowire.AppendTag(ack, 6, protowire.BytesType)
		ack = protowire.AppendString(ack, r.nonce)
		if err := stream.SendMsg(ack); err != nil {
			return
		}
		switch left := l.pending.Add(-r.resources); {
		case left == 0 && r.resources > 0:
			l.arrived <- struct{}{}
		case left < 0:
			l.tb.Errorf("clients were sent %d resources more than they wait for", -left)
		}
	}
}

// beginAll subscribes the first client to all resources, and then the others to that which changes.
// between is in between.
func (l *relayLoad) beginAll(between func()) {
	l.tb.Helper()
	all := make([]string, l.size.of)
	for i := range all {
		all[i] = l.size.name(i)
	}
	l.expect(len(all))
	l.begin(0, all...)
	l.await()
	between()
	l.expect(l.size.clients - 1)
	for i := 1; i < l.size.clients; i++ {
		l.begin(i, l.size.name(0))
	}
	l.await()
}

// widen subscribes all but the first client to the rest of what they want, which is spread evenly over
// the resources.
func (l *relayLoad) widen() {
	l.tb.Helper()
	step := (l.size.of - 1) / (l.size.each - 1)
	names := make([]string, l.size.each-1)
	for first := 1; first < l.size.clients; first += wave {
		last := min(first+wave, l.size.clients)
		l.expect((last - first) * len(names))
		for i := first; i < last; i++ {
			for j := range names {
				names[j] = l.size.name(1 + (i+j*step)%(l.size.of-1))
			}
			l.subscribe(i, names)
		}
		l.await()
	}
}

// change changes the resource that all have, and returns when the last client has it.
func (l *relayLoad) change() {
	l.tb.Helper()
	l.changes++
	l.expect(l.size.clients)
	l.set(l.size.resource(0, l.changes))
	l.await()
}

// counted is what clients look at in a DeltaDiscoveryResponse.
type counted struct {
	nonce     string
	resources int64
}

// countingCodec sends bytes as they are, and reads a DeltaDiscoveryResponse as counted.
type countingCodec struct{}

var _ encoding.CodecV2 = countingCodec{}

func (countingCodec) Name() string { return "proto" }

func (countingCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (countingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	r := v.(*counted)
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	for rest := buffer.ReadOnlyData(); len(rest) > 0; {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return protowire.ParseError(n)
		}
		rest = rest[n:]
		size := protowire.ConsumeFieldValue(number, kind, rest)
		if size < 0 {
			return protowire.ParseError(size)
		}
		switch number {
		case 2:
			r.resources++
		case 5:
			value, _ := protowire.ConsumeString(rest)
			r.nonce = value
		}
		rest = rest[size:]
	}
	return nil
}
