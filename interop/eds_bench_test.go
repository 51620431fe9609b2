//go:build unix

package interop_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/gocp"
)

// BenchmarkEndpointUpdate is the time from a control plane's update, in which one of
// many connected endpoints is another one, until the client dials that one. cpu-ms/op
// is the CPU time of the process. Figures hold the control plane's work and the wire
// too; "peer=nobody" is a client that only reads the responses, and so what there is to
// subtract. dials/op is how many connections an update makes: one, if it touches nothing
// else. To connect 10,000 endpoints takes a while before the measurement, most of it in
// gRPC's round_robin, which looks at all of them whenever one becomes ready.
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
