package interop_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// grpcGoTree is the root of gRPC-Go's tree of xDS policies.
const grpcGoTree = "xds_cluster_manager_experimental"

// Benchmarks pick with the trees of channels that they have dialled. For that, both
// roots are registered once more, with a tap that a benchmark can open.
func init() {
	for _, name := range []string{grpcGoTree, "dynxds_experimental"} {
		b := tappedBuilder{grpcbalancer.Get(name)}
		if parser, ok := b.Builder.(grpcbalancer.ConfigParser); ok {
			grpcbalancer.Register(parsingBuilder{b, parser})
		} else {
			grpcbalancer.Register(b)
		}
	}
}

// open is the tap that the trees being built are under; nil for none, so that they
// are what they are without taps.
var open struct {
	sync.Mutex
	tap *tap
}

type tappedBuilder struct{ grpcbalancer.Builder }

func (b tappedBuilder) Build(cc grpcbalancer.ClientConn, opts grpcbalancer.BuildOptions) grpcbalancer.Balancer {
	open.Lock()
	t := open.tap
	open.Unlock()
	if t != nil {
		cc = &tappedClientConn{cc, t}
	}
	return b.Builder.Build(cc, opts)
}

type parsingBuilder struct {
	tappedBuilder
	parser grpcbalancer.ConfigParser
}

func (b parsingBuilder) ParseConfig(config json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	return b.parser.ParseConfig(config)
}

// tap keeps the latest picker of one tree, and what an RPC was picked with.
type tap struct {
	mu    sync.Mutex
	state grpcbalancer.State
	info  *grpcbalancer.PickInfo
	ready int           // SubConns that have become READY
	news  chan struct{} // closed when one of them changes
}

// openTap has the trees that are built from now on report to the tap, until the end
// of the benchmark.
func openTap(b *testing.B) *tap {
	t := &tap{news: make(chan struct{})}
	set := func(t *tap) {
		open.Lock()
		defer open.Unlock()
		open.tap = t
	}
	set(t)
	b.Cleanup(func() { set(nil) })
	return t
}

type tappedClientConn struct {
	grpcbalancer.ClientConn
	tap *tap
}

func (cc *tappedClientConn) UpdateState(s grpcbalancer.State) {
	t := cc.tap
	t.mu.Lock()
	t.state = s
	close(t.news)
	t.news = make(chan struct{})
	t.mu.Unlock()
	s.Picker = tappedPicker{s.Picker, t}
	cc.ClientConn.UpdateState(s)
}

func (cc *tappedClientConn) NewSubConn(addrs []resolver.Address, opts grpcbalancer.NewSubConnOptions) (grpcbalancer.SubConn, error) {
	listener := opts.StateListener
	opts.StateListener = func(s grpcbalancer.SubConnState) {
		listener(s)
		if s.ConnectivityState == connectivity.Ready {
			cc.tap.mu.Lock()
			cc.tap.ready++
			cc.tap.mu.Unlock()
		}
	}
	//lint:ignore SA1019 it is passed on as it is
	return cc.ClientConn.NewSubConn(addrs, opts)
}

type tappedPicker struct {
	grpcbalancer.Picker
	tap *tap
}

func (p tappedPicker) Pick(info grpcbalancer.PickInfo) (grpcbalancer.PickResult, error) {
	p.tap.mu.Lock()
	if p.tap.info == nil {
		p.tap.info = &info
		close(p.tap.news)
		p.tap.news = make(chan struct{})
	}
	p.tap.mu.Unlock()
	return p.Picker.Pick(info)
}

// await returns the picker of the tree, and what RPCs pick with, once it picks n
// different endpoints. An RPC is picked for before.
func (t *tap) await(ctx context.Context, b *testing.B, n int) (grpcbalancer.Picker, grpcbalancer.PickInfo) {
	b.Helper()
	for {
		t.mu.Lock()
		s, info, ready, news := t.state, t.info, t.ready, t.news
		t.mu.Unlock()
		if info != nil && ready >= n && s.ConnectivityState == connectivity.Ready && picks(s.Picker, *info, n) == n {
			return s.Picker, *info
		}
		select {
		case <-news:
		case <-ctx.Done():
			b.Fatalf("the tree does not get %d endpoints ready: %v", n, ctx.Err())
		}
	}
}

// picks returns how many endpoints 2n picks found.
func picks(p grpcbalancer.Picker, info grpcbalancer.PickInfo, n int) int {
	found := make(map[grpcbalancer.SubConn]struct{})
	for range 2 * n {
		result, err := p.Pick(info)
		if err != nil {
			return 0
		}
		found[result.SubConn] = struct{}{}
		end(result)
	}
	return len(found)
}

// end is the end of an RPC that succeeds.
func end(result grpcbalancer.PickResult) {
	if result.Done != nil {
		result.Done(grpcbalancer.DoneInfo{BytesSent: true, BytesReceived: true})
	}
}
