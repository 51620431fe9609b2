package soak

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	_ "unsafe" // for go:linkname

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/interop/memnet"
)

// network is that of all simulations of the process.
var network = memnet.New()

// What gRPC has for options of all channels: the clients of control planes are made by the
// resolver, which takes none.
//
//go:linkname addGlobalDialOptions google.golang.org/grpc/internal.AddGlobalDialOptions
var addGlobalDialOptions any

// dialVirtually makes channels dial addresses of the network in memory there, from the host that is in front of the
// address ("host.10.0.0.1:443"). All other addresses are dialled as ever.
var dialVirtually = sync.OnceFunc(func() {
	addGlobalDialOptions.(func(...grpc.DialOption))(grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		host, at, _ := strings.Cut(addr, ".")
		if _, err := netip.ParseAddrPort(at); err == nil {
			return network.Dial(ctx, host, at)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}))
})

// uri names a control plane, by its address, in the bootstrap of a host.
func uri(host, addr string) string { return "passthrough:///" + host + "." + addr }

// dialFrom opens the connections of a host.
func dialFrom(host string) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		return network.Dial(ctx, host, addr)
	})
}
