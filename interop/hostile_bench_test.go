//go:build unix

package interop_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/dnsserver"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/meshtest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// attackTime is how long a client is under an attack, from its first RPC.
const attackTime = 15 * time.Second

// attack is a hostile, or merely careless, control plane.
type attack struct {
	name string
	// before is what it serves when the client starts.
	before func(w *hostileWorld) []proto.Message
	// meanwhile goes on until the client has made its RPCs. It may be nil.
	meanwhile func(ctx context.Context, b *testing.B, w *hostileWorld)
}

// hostileWorld is a control plane under the attacker's command, and a backend.
type hostileWorld struct {
	server  *meshtest.Server
	backend string
	dns     *dnsserver.Server
}

// honest is what a client needs for its RPCs.
func (w *hostileWorld) honest() []proto.Message {
	return []proto.Message{listener("routes"), routes("routes", "cluster"),
		xdsmsg.EDSCluster("cluster", ""), xdsmsg.SimpleEndpoints("cluster", w.backend)}
}

// BenchmarkHostile is the cost of a hostile control plane to a client that makes 20 RPCs a
// second: CPU time and peak memory of its process, and bytes of its log at warning level. RPCs
// that were not answered in a second have failed.
func BenchmarkHostile(b *testing.B) {
	for _, a := range attacks {
		for _, peer := range []string{grpcGo, ours, oursOnDelta} {
			b.Run(fmt.Sprintf("attack=%s/peer=%s", a.name, peer), func(b *testing.B) { benchHostile(b, a, peer) })
		}
	}
}

func benchHostile(b *testing.B, a attack, peer string) {
	w := &hostileWorld{
		server:  meshtest.StartServer(b),
		backend: new(fleet).backendAt(b, "0.0.0.0:0", firstBackend, 1)[0],
		dns:     dnsserver.Start(b),
	}
	w.backend = "127.0.0.1" + w.backend[len("[::]"):]
	w.server.Set(b, a.before(w)...)
	var log atomic.Int64
	client := startLoggingBenchClient(b, bootstrapOf(peer, w.server), &log)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if a.meanwhile != nil {
			a.meanwhile(ctx, b, w)
		}
	}()
	var u usage
	for b.Loop() {
		u = client.do(order{Op: "load", Peer: peer, DNS: w.dns.Addr(), Method: "/example.Service/Method", For: attackTime})
	}
	cancel()
	<-done
	figures := map[string]float64{
		"cpu-ms":           float64(u.CPU.Microseconds()) / 1e3,
		"peak-B":           float64(u.Peak),
		"log-B":            float64(log.Load()),
		"%-of-RPCs-failed": 100 * float64(u.Failed) / float64(u.RPCs),
		"descriptors":      float64(u.MostDescriptors),
	}
	if u.Failed < u.RPCs {
		figures["ms-until-the-first-RPC"] = float64(u.ElapsedUntilAnswer) / 1e6
	}
	report(b, figures)
}

// attacks are the cases of BenchmarkHostile.
var attacks = []attack{
	{"none", (*hostileWorld).honest, nil},
	{"400,000 HTTP filters", (*hostileWorld).honest, func(ctx context.Context, b *testing.B, w *hostileWorld) {
		filters := make([]*hcmpb.HttpFilter, 400_000)
		for i := range filters {
			filters[i] = xdsmsg.Filter(fmt.Sprint("filter", i), &faultpb.HTTPFault{})
		}
		w.server.Set(b, xdsmsg.DefaultListener(service, "routes", filters...))
		<-ctx.Done()
	}},
	{"RouteConfiguration of 400,000 routes", func(w *hostileWorld) []proto.Message {
		return append(w.honest(), manyRoutes(0))
	}, nil},
	{"its like every 2 s", (*hostileWorld).honest, func(ctx context.Context, b *testing.B, w *hostileWorld) {
		every(ctx, 2*time.Second, func(i int) { w.server.Set(b, manyRoutes(i)) })
	}},
	{"10,000 localities", func(w *hostileWorld) []proto.Message {
		localities := make([]xdsmsg.Locality, 10_000)
		for i := range localities {
			localities[i] = xdsmsg.In(fmt.Sprint("zone", i), w.at(i))
		}
		return append(w.honest(), xdsmsg.Endpoints("cluster", localities...))
	}, nil},
	{"15,000 endpoints", func(w *hostileWorld) []proto.Message {
		addrs := make([]string, 15_000)
		for i := range addrs {
			addrs[i] = w.at(i)
		}
		return append(w.honest(), xdsmsg.SimpleEndpoints("cluster", addrs...))
	}, nil},
	{"aggregate of 2,000 aggregates", func(w *hostileWorld) []proto.Message {
		all := append(w.honest(), xdsmsg.EDSCluster("leaf", "cluster"))
		var names []string
		for i := range 2_000 {
			names = append(names, fmt.Sprint("aggregate", i))
			all = append(all, xdsmsg.AggregateCluster(names[i], "leaf"))
		}
		return append(all, xdsmsg.AggregateCluster("cluster", names...))
	}, nil},
	{"version of 5 MB, then a new stream", (*hostileWorld).honest, func(ctx context.Context, _ *testing.B, w *hostileWorld) {
		version := string(bytes.Repeat([]byte("v"), 5_000_000))
		w.server.OnResponse(func(sotw *discoverypb.DiscoveryResponse, delta *discoverypb.DeltaDiscoveryResponse) bool {
			sotw.VersionInfo = version
			for _, resource := range delta.GetResources() {
				resource.Version = version
			}
			return true
		})
		every(ctx, 3*time.Second, func(int) { w.server.BreakStreams(nil) })
	}},
	{"1,000 dead names of DNS", func(w *hostileWorld) []proto.Message {
		all := w.honest()
		var table []*routepb.Route
		for i := range 1_000 {
			host := fmt.Sprintf("dead%d.example.com", i)
			w.dns.Fault(host, dnsserver.Silence)
			name := fmt.Sprint("dead", i)
			all = append(all, xdsmsg.InlineCluster(name, clusterpb.Cluster_LOGICAL_DNS, xdsmsg.In("zone", host+":80")))
			table = append(table, xdsmsg.PathRoute("/example.Dead/"+name, name))
		}
		w.dns.SetA("alive.example.com", "127.0.0.1")
		_, port, _ := bytes.Cut([]byte(w.backend), []byte(":"))
		return append(all,
			xdsmsg.InlineCluster("alive", clusterpb.Cluster_LOGICAL_DNS, xdsmsg.In("zone", "alive.example.com:"+string(port))),
			xdsmsg.RouteConfig("routes", service, append(table, xdsmsg.PrefixRoute("/", "alive"))...))
	}, nil},
	{"1,000 changes of 21 endpoints a second", (*hostileWorld).honest, func(ctx context.Context, b *testing.B, w *hostileWorld) {
		every(ctx, time.Millisecond, func(i int) {
			addrs := make([]string, 21)
			for j := range addrs {
				addrs[j] = w.at(21*i + j)
			}
			w.server.Set(b, xdsmsg.SimpleEndpoints("cluster", addrs...))
		})
	}},
	{"100 faulty Clusters 100 times a second", (*hostileWorld).hundred, func(ctx context.Context, b *testing.B, w *hostileWorld) {
		every(ctx, 10*time.Millisecond, func(i int) {
			var faulty []proto.Message
			for j := range 100 {
				c := xdsmsg.EDSCluster(fmt.Sprint("cluster", j), fmt.Sprint("endpoints", i))
				c.EdsClusterConfig.EdsConfig = nil
				faulty = append(faulty, c)
			}
			w.server.Set(b, faulty...)
		})
	}},
	{"another faulty Cluster for each NACK", (*hostileWorld).hundred, func(ctx context.Context, b *testing.B, w *hostileWorld) {
		for i := 0; ctx.Err() == nil; i++ {
			c := xdsmsg.EDSCluster("cluster0", fmt.Sprint("endpoints", i))
			c.EdsClusterConfig.EdsConfig = nil
			w.server.Set(b, c)
			_, _ = w.server.Wait(ctx, xdstest.NACKOf(xdsmsg.ClusterType)) // fails when ctx ends
		}
	}},
	{"100 deletions 100 times a second", (*hostileWorld).hundred, func(ctx context.Context, b *testing.B, w *hostileWorld) {
		every(ctx, 10*time.Millisecond, func(i int) {
			for j := range 100 {
				name := fmt.Sprint("cluster", j)
				if i%2 == 0 {
					w.server.Delete(b, xdsmsg.ClusterType, name)
				} else {
					w.server.Set(b, xdsmsg.EDSCluster(name, "cluster"))
				}
			}
		})
	}},
}

// hundred is honest with a hundred Clusters more that have routes.
func (w *hostileWorld) hundred() []proto.Message {
	all := w.honest()
	var table []*routepb.Route
	for i := range 100 {
		name := fmt.Sprint("cluster", i)
		all = append(all, xdsmsg.EDSCluster(name, "cluster"))
		table = append(table, xdsmsg.PathRoute("/example.Other/"+name, name))
	}
	return append(all, xdsmsg.RouteConfig("routes", service, append(table, xdsmsg.PrefixRoute("/", "cluster"))...))
}

// manyRoutes is a RouteConfiguration of about 23 MB. Each differs from the others in every route.
func manyRoutes(i int) proto.Message {
	table := make([]*routepb.Route, 400_000)
	for j := range table {
		table[j] = xdsmsg.PathRoute(fmt.Sprintf("/example.Service%06d/MethodOfVersion%03d", j, i), "cluster")
	}
	return xdsmsg.RouteConfig("routes", service, append(table, xdsmsg.PrefixRoute("/", "cluster"))...)
}

// at is an address of the backend, another one for each of 4 million numbers.
func (w *hostileWorld) at(i int) string {
	return fmt.Sprintf("127.%d.%d.%d%s", i>>16&63+1, i>>8&255, i&255, w.backend[len("127.0.0.1"):])
}

// every calls f with 1, 2 and so on, at this interval, until ctx ends.
func every(ctx context.Context, interval time.Duration, f func(i int)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for i := 1; ; i++ {
		select {
		case <-ticker.C:
			f(i)
		case <-ctx.Done():
			return
		}
	}
}

// load makes 20 RPCs a second on one channel.
func (p *benchProgram) load(o order) (usage, error) {
	useDNS(o.DNS)
	cc, err := p.channel(o.Peer)
	if err != nil {
		return usage{}, err
	}
	var u usage
	begin := time.Now()
	ticker := time.NewTicker(time.Second / 20)
	defer ticker.Stop()
	results := make(chan error, int(o.For/time.Second)*20+1)
	end := time.After(o.For)
	take := func(err error) {
		u.RPCs++
		switch {
		case err != nil:
			u.Failed++
		case u.ElapsedUntilAnswer == 0:
			u.ElapsedUntilAnswer = int64(time.Since(begin))
		}
	}
	for open, more := 0, true; more || open > 0; {
		select {
		case <-ticker.C:
			if !more || open == cap(results) {
				continue
			}
			open++
			go func() { results <- brief(cc, o.Method) }()
		case err := <-results:
			open--
			take(err)
		case <-end:
			more = false
		}
		if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
			u.MostDescriptors = max(u.MostDescriptors, len(entries))
		}
	}
	now := used()
	u.CPU, u.Heap = now.CPU, now.Heap
	u.Peak, err = peak()
	return u, err
}

// brief makes an RPC that has a second.
func brief(cc *grpc.ClientConn, method string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := cc.Invoke(ctx, method, &testpb.Empty{}, new(testpb.SimpleResponse))
	if status.Code(err) == codes.OK {
		return nil
	}
	return err
}

// peak is the most memory that this process had, in bytes.
func peak() (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(text, []byte("VmHWM:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0, nil
	}
	kB, err := strconv.ParseInt(string(fields[0]), 10, 64)
	return kB << 10, err
}

// useDNS has the process ask a DNS server.
func useDNS(addr string) {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
}
