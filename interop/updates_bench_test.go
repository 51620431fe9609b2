//go:build unix

package interop_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/dnsserver"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/gocp"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/testutils"
)

// BenchmarkEndpointUpdate is the time from an update that replaces one of many connected
// endpoints until the client dials the new one. cpu-ms/op is the CPU time of the process.
// The figures include the control plane and the wire; "peer=nobody", a client that only
// reads the responses, is the part to subtract. dials/op is the number of connections of an
// update: one, if it affects no other endpoint. To connect 10,000 endpoints takes a while
// before the measurement, most of it in gRPC's round_robin, which looks at all of them
// whenever one becomes ready.
func BenchmarkEndpointUpdate(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			b.Run("peer=nobody", func(b *testing.B) { benchmarkReading(b, n) })
			for _, p := range trees {
				b.Run("peer="+p.name, func(b *testing.B) { benchmarkEndpointUpdate(b, p, n) })
			}
		})
	}
}

func benchmarkEndpointUpdate(b *testing.B, p treePeer, n int) {
	w := newEndpointWorld(b, n)
	t := openTap(b)
	ctx, cancel := context.WithTimeout(b.Context(), connecting)
	defer cancel()
	w.network.connect(ctx, b, p, w.control)
	t.await(ctx, b, n)
	dials, cpu := w.network.count(), cpuTime(b)
	b.ReportAllocs()
	for b.Loop() {
		dialled := w.network.expect(w.replaceOne())
		w.publish(b)
		select {
		case <-dialled:
		case <-ctx.Done():
			b.Fatal("the new endpoint is not dialled")
		}
	}
	b.StopTimer()
	reportCPU(b, cpu)
	b.ReportMetric(float64(w.network.count()-dials)/float64(b.N), "dials/op")
}

// cpuTime is what the process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	xdstest.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func reportCPU(b *testing.B, before time.Duration) {
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// benchmarkReading reads the responses and decodes none.
func benchmarkReading(b *testing.B, n int) {
	w := newEndpointWorld(b, n)
	reader := newReader(b, w.control, "endpoints-of-cluster")
	reader.next(b)
	cpu := cpuTime(b)
	b.ReportAllocs()
	for b.Loop() {
		w.replaceOne()
		w.publish(b)
		reader.next(b)
	}
	b.StopTimer()
	reportCPU(b, cpu)
}

// endpointWorld is a control plane with one cluster of many endpoints.
type endpointWorld struct {
	control   *gocp.Server
	network   *pipes
	endpoints *endpointpb.ClusterLoadAssignment
	replaced  int
}

func newEndpointWorld(b *testing.B, n int) *endpointWorld {
	b.Helper()
	w := &endpointWorld{control: gocp.Start(b, gocp.AnyNames), network: newPipes(b)}
	w.endpoints = xdsmsg.SimpleEndpoints("endpoints-of-cluster", onPipes(n)...)
	w.publish(b)
	return w
}

// replaceOne puts another endpoint in the place of one, and returns its address.
func (w *endpointWorld) replaceOne() string {
	w.replaced++
	addr := fmt.Sprintf("10.%d.%d.%d:80", 1+w.replaced>>16, w.replaced>>8&255, w.replaced&255)
	one := w.endpoints.GetEndpoints()[0].GetLbEndpoints()[77]
	one.GetEndpoint().Address = xdsmsg.Address(addr)
	return addr
}

func (w *endpointWorld) publish(b *testing.B) {
	w.control.Set(b, listener("routes"), routes("routes", "cluster"), cluster("cluster", "cluster"), w.endpoints)
}

// reader is an ADS stream on which responses are ACKed and not looked at.
type reader struct {
	stream discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	names  []string
}

func newReader(b *testing.B, control *gocp.Server, name string) *reader {
	b.Helper()
	cc := dial(b, nil, control.Addr())
	stream, err := discoverypb.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(b.Context())
	xdstest.NoError(b, err)
	r := &reader{stream, []string{name}}
	r.send(b, &discoverypb.DiscoveryRequest{Node: &corepb.Node{Id: gocp.NodeID}})
	return r
}

func (r *reader) send(b *testing.B, request *discoverypb.DiscoveryRequest) {
	b.Helper()
	request.TypeUrl, request.ResourceNames = xdsmsg.EndpointType, r.names
	xdstest.NoError(b, r.stream.Send(request))
}

func (r *reader) next(b *testing.B) {
	b.Helper()
	response, err := r.stream.Recv()
	xdstest.NoError(b, err)
	r.send(b, &discoverypb.DiscoveryRequest{VersionInfo: response.GetVersionInfo(), ResponseNonce: response.GetNonce()})
}

// BenchmarkMembers is what each member of one big cluster costs the client's process
// from the dial until it is at rest: a cluster under an aggregate one, an endpoint of a
// STATIC cluster, a name of a STRICT_DNS cluster. At ten times as many it should be
// the same.
func BenchmarkMembers(b *testing.B) {
	for _, kind := range []struct {
		name  string
		sizes []int
		peers []string
		make  func(m *memberWorld, n int) []proto.Message
	}{
		{"aggregate", []int{500, 5000}, []string{grpcGo, ours, oursOnDelta}, (*memberWorld).aggregate},
		{"static", []int{10_000, 100_000}, []string{ours}, (*memberWorld).static},
		{"random", []int{1000, 10_000}, []string{ours}, (*memberWorld).random},
		{"dns", []int{1000, 10_000}, []string{ours}, (*memberWorld).dns},
	} {
		for _, n := range kind.sizes {
			for _, peer := range kind.peers {
				b.Run(fmt.Sprintf("%s/members=%d/peer=%s", kind.name, n, peer), func(b *testing.B) {
					m := newMemberWorld(b)
					m.server.Update(b, func(tx *controlplane.Tx) { tx.Set(kind.make(m, n)...) })
					client := startBenchClient(b, bootstrapOf(peer, m.server))
					before := client.held()
					dialed := client.do(order{Op: "dial", Peer: peer, Channels: 1, Method: "/example.Service/Method", DNS: m.zone.Addr()})
					held := client.held()
					b.Run("cost", func(b *testing.B) {
						each := float64(n)
						report(b, map[string]float64{
							"cpu-us/member":          float64((held.CPU - before.CPU).Nanoseconds()) / 1e3 / each,
							"heap-B/member":          (float64(held.Heap) - float64(before.Heap)) / each,
							"most-goroutines":        float64(held.MostGoroutines),
							"ms-until-the-first-RPC": float64(dialed.ElapsedUntilAnswer) / 1e6,
						})
					})
				})
			}
		}
	}
}

// memberWorld is a control plane, a DNS server and a backend on every address of the
// loopback network.
type memberWorld struct {
	server *meshtest.Server
	zone   *dnsserver.Server
	port   int
}

func newMemberWorld(b *testing.B) *memberWorld {
	m := &memberWorld{}
	m.server = meshtest.StartServer(b, meshtest.GRPCOptions(grpc.MaxRecvMsgSize(64<<20)))
	m.server.Keep(20)
	var err error
	if m.zone, err = dnsserver.New(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(m.zone.Close)
	f := &fleet{}
	_, port, err := net.SplitHostPort(f.backendAt(b, "0.0.0.0:0", firstBackend, 1)[0])
	xdstest.NoError(b, err)
	if m.port, err = net.LookupPort("tcp", port); err != nil {
		b.Fatal(err)
	}
	return m
}

// address returns the i-th of up to 2^20 addresses of the backend.
func (m *memberWorld) address(i int) string {
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+i>>16, i>>8&255, i&255, m.port)
}

func (m *memberWorld) aggregate(n int) []proto.Message {
	names := make([]string, n)
	resources := []proto.Message{listener("routes"), routes("routes", "cluster")}
	for i := range names {
		names[i] = fmt.Sprintf("member-%05d", i)
		resources = append(resources, xdsmsg.EDSCluster(names[i], ""), xdsmsg.SimpleEndpoints(names[i], m.address(i)))
	}
	c := xdsmsg.AggregateCluster("cluster", names...)
	c.LbPolicy = clusterpb.Cluster_ROUND_ROBIN // gRPC-Go does not take CLUSTER_PROVIDED.
	return append(resources, c)
}

func (m *memberWorld) static(n int) []proto.Message {
	var addrs []string
	for i := range n {
		addrs = append(addrs, m.address(i))
	}
	// The only one of the common policies that connects to an endpoint when it is picked.
	c := xdsmsg.With(xdsmsg.InlineCluster("cluster", clusterpb.Cluster_STATIC, xdsmsg.In("zone", addrs...)), "lb_policy: RING_HASH ring_hash_lb_config {}")
	return []proto.Message{listener("routes"), routes("routes", "cluster"), c}
}

// random connects to all of its endpoints, and costs what connections cost.
func (m *memberWorld) random(n int) []proto.Message {
	resources := m.static(n)
	c := resources[2].(*clusterpb.Cluster)
	c.LbPolicy, c.LbConfig = clusterpb.Cluster_RANDOM, nil
	return resources
}

// dns has names that all lead to the same few addresses, so that it is not the
// connections that are measured.
func (m *memberWorld) dns(n int) []proto.Message {
	var names []string
	for i := range n {
		name := fmt.Sprintf("member-%05d.test", i)
		m.zone.SetA(name, "127.0.0."+fmt.Sprint(1+i%8))
		names = append(names, fmt.Sprintf("%s:%d", name, m.port))
	}
	c := xdsmsg.InlineCluster("cluster", clusterpb.Cluster_STRICT_DNS, xdsmsg.In("zone", names...))
	return []proto.Message{listener("routes"), routes("routes", "cluster"), c}
}

// useDNS has the process ask a DNS server.
func useDNS(addr string) {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
}

// repetition is when a repeater sends the same response for Clusters once more.
type repetition string

const (
	// afterNACK: when the response is NACKed, as go-control-plane's server does.
	afterNACK repetition = "NACKed"
	// afterACK: when it is ACKed.
	afterACK repetition = "ACKed"
	// unasked: without end, as fast as the client reads.
	unasked repetition = "unasked"
)

// BenchmarkRepeats is what a client makes of a control plane that repeats itself, after
// the channel was set up.
func BenchmarkRepeats(b *testing.B) {
	for _, when := range []repetition{afterNACK, afterACK, unasked} {
		for _, peer := range []string{grpcGo, ours, oursOnDelta} {
			b.Run(fmt.Sprintf("response=%s/peer=%s", when, peer), func(b *testing.B) { benchRepeats(b, when, peer) })
		}
	}
}

func benchRepeats(b *testing.B, when repetition, peer string) {
	server := startRepeater(b, when)
	var opts []testutils.BootstrapOption
	if peer == oursOnDelta {
		opts = append(opts, testutils.ServerFeatures("delta"))
	}
	client := startBenchClient(b, testutils.Bootstrap(peer, server.addr, opts...))
	client.do(order{Op: "dial", Peer: peer, Channels: 1, Method: "/example.Service/Method"})
	second := time.NewTicker(time.Second)
	defer second.Stop()
	close(server.begin)
	<-second.C // what comes first is no repetition
	seconds := 0.0
	before, sent := client.do(order{Op: "usage"}), server.sent.Load()
	for start := time.Now(); b.Loop(); seconds = time.Since(start).Seconds() {
		<-second.C
	}
	after := client.do(order{Op: "usage"})
	report(b, map[string]float64{
		"cpu-ms/second":    float64((after.CPU - before.CPU).Microseconds()) / 1e3 / seconds,
		"responses/second": float64(server.sent.Load()-sent) / seconds,
	})
}

// repeater is a control plane with one service, which sends its resources again and again
// after begin is closed.
type repeater struct {
	discoverypb.UnimplementedAggregatedDiscoveryServiceServer
	when  repetition
	addr  string
	begin chan struct{}
	// sent counts the responses.
	sent atomic.Int64
	// first is what it serves, and again what it repeats.
	first map[string]proto.Message
	names map[string]string
	again *clusterpb.Cluster
}

func startRepeater(b *testing.B, when repetition) *repeater {
	const name = "cluster"
	backends := new(fleet).backend(b, firstBackend, 1)
	s := &repeater{when: when, begin: make(chan struct{}), again: xdsmsg.EDSCluster(name, ""), first: map[string]proto.Message{
		xdsmsg.ListenerType: listener("routes"),
		xdsmsg.RouteType:    routes("routes", name),
		xdsmsg.ClusterType:  xdsmsg.EDSCluster(name, ""),
		xdsmsg.EndpointType: xdsmsg.SimpleEndpoints(name, backends...),
	}}
	s.names = map[string]string{
		xdsmsg.ListenerType: service, xdsmsg.RouteType: "routes", xdsmsg.ClusterType: name, xdsmsg.EndpointType: name,
	}
	if when == afterNACK {
		s.again.EdsClusterConfig = nil
	}
	s.addr = serveUntilEnd(b, func(r grpc.ServiceRegistrar) { discoverypb.RegisterAggregatedDiscoveryServiceServer(r, s) }, func() {})
	return s
}

// speaker is one stream, of either variant of the protocol.
type speaker struct {
	server *repeater
	mu     sync.Mutex
	n      int
	// send sends a response with one resource.
	send func(typeURL, nonce string, resource *anypb.Any) error
}

// say sends a response with one resource, under a nonce that begins with the given word.
func (s *speaker) say(typeURL, nonce string, resource proto.Message) error {
	packed, err := anypb.New(resource)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	s.server.sent.Add(1)
	return s.send(typeURL, fmt.Sprint(nonce, s.n), packed)
}

const again = "again"

// repeat sends what is repeated, once or without end, when it is time to begin.
func (s *speaker) repeat(ctx context.Context) {
	select {
	case <-s.server.begin:
	case <-ctx.Done():
		return
	}
	for s.say(xdsmsg.ClusterType, again, s.server.again) == nil && s.server.when == unasked {
	}
}

// answer answers a request.
func (s *speaker) answer(typeURL, nonce string, names []string) error {
	switch {
	case nonce == "" && len(names) > 0:
		return s.say(typeURL, "first", s.server.first[typeURL])
	case strings.HasPrefix(nonce, again) && s.server.when != unasked:
		return s.say(typeURL, again, s.server.again)
	default:
		return nil
	}
}

func (s *repeater) StreamAggregatedResources(stream discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	to := &speaker{server: s, send: func(typeURL, nonce string, resource *anypb.Any) error {
		return stream.Send(&discoverypb.DiscoveryResponse{TypeUrl: typeURL, VersionInfo: nonce[:1], Nonce: nonce, Resources: []*anypb.Any{resource}})
	}}
	go to.repeat(stream.Context()) // ends with the stream
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := to.answer(r.GetTypeUrl(), r.GetResponseNonce(), r.GetResourceNames()); err != nil {
			return err
		}
	}
}

func (s *repeater) DeltaAggregatedResources(stream discoverypb.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	to := &speaker{server: s}
	to.send = func(typeURL, nonce string, resource *anypb.Any) error {
		return stream.Send(&discoverypb.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: nonce, Resources: []*discoverypb.Resource{
			{Name: s.names[typeURL], Version: nonce[:1], Resource: resource},
		}})
	}
	go to.repeat(stream.Context()) // ends with the stream
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := to.answer(r.GetTypeUrl(), r.GetResponseNonce(), r.GetResourceNamesSubscribe()); err != nil {
			return err
		}
	}
}
