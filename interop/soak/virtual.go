package soak

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/interop/memnet"
	"github.com/dynxds/dynxds/testutils"
)

// network is that of all simulations of the process.
var network memnet.Network

// What gRPC has for options of all channels: the clients of control planes are made by the
// resolver, which takes none.
//
//go:linkname addGlobalDialOptions google.golang.org/grpc/internal.AddGlobalDialOptions
var addGlobalDialOptions any

// dialVirtually makes channels dial addresses of the network in memory there, from the host that is in front of the
// address ("host.10.0.0.1:443"). All other addresses are dialled as ever.
var dialVirtually = sync.OnceFunc(func() {
	addGlobalDialOptions.(func(...grpc.DialOption))(grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		if host, at, ok := strings.Cut(addr, "."); ok && network.Reaches(at) {
			return network.Dial(ctx, host, at)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}))
})

// virtual are the surroundings of a simulation: virtual time, and a network in memory.
type virtual struct {
	mu sync.Mutex
	// stirred is when something happened last, and news is closed and replaced then.
	stirred time.Time
	news    chan struct{}
}

func newVirtual() *virtual { return &virtual{stirred: time.Now(), news: make(chan struct{})} }

// hostID is how a host is called in the network.
func hostID(host string) string { return strings.ReplaceAll(host, " ", "-") }

func (*virtual) uri(host, addr string) string { return "passthrough:///" + hostID(host) + "." + addr }

func (*virtual) dial(host string) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		return network.Dial(ctx, hostID(host), addr)
	})}
}

func (*virtual) link() *testutils.Link { return nil }

func (*virtual) refresh() time.Duration { return 2 * time.Second }

const (
	// briskest and slowest bound the time between two RPCs of a kind.
	briskest = 40 * time.Millisecond
	slowest  = time.Minute
	// calming is how much of the time since the last event an RPC waits for the next: there are
	// many RPCs after an event, and few in the hours between.
	calming = 0.15
)

func (v *virtual) stir() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stirred = time.Now()
	close(v.news)
	v.news = make(chan struct{})
}

func (v *virtual) rest(done <-chan struct{}) {
	v.mu.Lock()
	calm, news := time.Since(v.stirred), v.news
	v.mu.Unlock()
	restFor(briskest, done)
	pause := min(slowest, time.Duration(calming*float64(calm))) - briskest
	if pause <= 0 {
		return
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-news:
	case <-done:
	}
}

func (*virtual) hold(long bool) (whole, every time.Duration) {
	if long {
		return 1500 * time.Millisecond, 500 * time.Millisecond
	}
	return 200 * time.Millisecond, 50 * time.Millisecond
}
