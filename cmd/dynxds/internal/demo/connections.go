package demo

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/stats"
)

// connections is a stats handler that records when the client's channel lost its connection
// to an address. An RPC that begins later cannot be on it.
type connections struct {
	mu   sync.Mutex
	open map[string]int
	lost map[string]time.Time
}

var _ stats.Handler = (*connections)(nil)

func newConnections() *connections {
	return &connections{open: map[string]int{}, lost: map[string]time.Time{}}
}

// lostAt returns when the last connection to addr ended, and false while there is one or
// if there never was.
func (c *connections) lostAt(addr string) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.lost[addr]
	return at, ok
}

type connKey struct{}

// TagConn implements stats.Handler.
func (c *connections) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connKey{}, addrString(info.RemoteAddr))
}

// HandleConn implements stats.Handler.
func (c *connections) HandleConn(ctx context.Context, s stats.ConnStats) {
	addr, _ := ctx.Value(connKey{}).(string)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s.(type) {
	case *stats.ConnBegin:
		c.open[addr]++
		delete(c.lost, addr)
	case *stats.ConnEnd:
		if c.open[addr]--; c.open[addr] == 0 {
			c.lost[addr] = time.Now()
		}
	}
}

// TagRPC implements stats.Handler.
func (c *connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (c *connections) HandleRPC(context.Context, stats.RPCStats) {}

func addrString(a net.Addr) string {
	if a == nil {
		return ""
	}
	return a.String()
}
