//go:build unix

package interop_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

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

// repeater is a control plane with one service that repeats itself when it is told to
// begin.
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(b, err)
	s.addr = l.Addr().String()
	server := grpc.NewServer()
	discoverypb.RegisterAggregatedDiscoveryServiceServer(server, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	b.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
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
