package e2e_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// openConnections counts the connections to a server that are open, and the most at one time.
type openConnections struct {
	noStats
	open, most, all atomic.Int64
}

func (c *openConnections) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		c.all.Add(1)
		for n, most := c.open.Add(1), c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
		}
	case *stats.ConnEnd:
		c.open.Add(-1)
	}
}

// everywhere is the port of a server on all loopback addresses, which answers each RPC.
func everywhere(t *testing.T, handler stats.Handler) (port int) {
	t.Helper()
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	xdstest.NoError(t, err)
	server := grpc.NewServer(grpc.StatsHandler(handler), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		message := new(emptypb.Empty)
		if err := s.RecvMsg(message); err != nil {
			return err
		}
		return s.SendMsg(message)
	}))
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return listener.Addr().(*net.TCPAddr).Port
}

// A cluster of 21 endpoints, one of which is replaced by an address never seen before up to a thousand times a second: no RPC fails,
// and the connections to what was removed do not pile up for the second that they linger.
func TestEndpointsReplacedAllTheTimeHoldFewConnections(t *testing.T) {
	t.Parallel()
	const size, changes = 21, 800
	seen := new(openConnections)
	port := everywhere(t, seen)
	m := newMesh(t)
	window := func(i int) (addrs []string) {
		for n := i; n < i+size; n++ {
			addrs = append(addrs, fmt.Sprintf("127.1.%d.%d:%d", n/250, n%250+1, port))
		}
		return addrs
	}
	m.set(chain(service, toCluster("c")), xdsmsg.EDSCluster("c", ""), xdsmsg.SimpleEndpoints("c", window(0)...))
	cc := m.dial("xds:///" + service)
	ctx, stop := context.WithCancel(testutils.Context(t))
	rpc := func() error {
		return cc.Invoke(ctx, unaryMethod, new(emptypb.Empty), new(emptypb.Empty))
	}
	xdstest.NoError(t, rpc())
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for ctx.Err() == nil {
			if err := rpc(); err != nil && ctx.Err() == nil {
				failed <- err
				return
			}
		}
	}()
	for i := 1; i <= changes; i++ {
		m.set(xdsmsg.SimpleEndpoints("c", window(i)...))
		time.Sleep(time.Millisecond) // the rate of the changes
	}
	stop()
	xdstest.NoError(t, <-failed)
	t.Logf("%d connections were made, at most %d were open at one time", seen.all.Load(), seen.most.Load())
	// Those in use before and after a change, those that linger, and some whose end a busy machine has not noticed yet.
	most := int64(3*size + bounds.LingeringConnections)
	if got := seen.most.Load(); got > most {
		t.Errorf("%d connections were open at one time, want %d at most", got, most)
	}
}
