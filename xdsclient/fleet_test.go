package xdsclient

import (
	"context"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// fleet is a list of servers, the preferred one first.
type fleet []*script

// newFleet starts servers that are reached as passthrough:///0, 1 and so on. They
// let clients connect at once.
func newFleet(t *testing.T, n int) fleet {
	f := make(fleet, n)
	for i := range f {
		f[i] = newScript(t)
		close(f[i].gate)
	}
	return f
}

func uri(i int) string { return fmt.Sprint("passthrough:///", i) }

func (f fleet) dial(ctx context.Context, addr string) (net.Conn, error) {
	return f[addr[0]-'0'].dial(ctx, addr)
}

// authorityWith is an authority with some of the servers, which have the given features.
func authorityWith(name string, features [][]string, servers ...int) testutils.BootstrapOption {
	var list []map[string]any
	for _, i := range servers {
		s := map[string]any{"server_uri": uri(i), "channel_creds": []any{map[string]any{"type": "insecure"}}}
		if len(features[i]) > 0 {
			s["server_features"] = features[i]
		}
		list = append(list, s)
	}
	return testutils.Authority(name, "", map[string]any{"xds_servers": list})
}

// client makes a client of the fleet.
func (f fleet) client(opts ...testutils.BootstrapOption) *XDSClient {
	f[0].t.Helper()
	return f.clientWith(make([][]string, len(f)), opts...)
}

// clientWith makes a client of the fleet, whose servers have the given features.
func (f fleet) clientWith(features [][]string, opts ...testutils.BootstrapOption) *XDSClient {
	t := f[0].t
	t.Helper()
	servers := []testutils.BootstrapOption{testutils.ServerFeatures(features[0]...)}
	for i := 1; i < len(f); i++ {
		servers = append(servers, testutils.FurtherServer(uri(i), features[i]...))
	}
	c, err := New(parseBootstrap(t, uri(0), append(servers, opts...)...), Options{Dial: []grpc.DialOption{grpc.WithContextDialer(f.dial)}, Backoff: steady})
	xdstest.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}
