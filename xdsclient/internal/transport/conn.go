package transport

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

const (
	// keepaliveTime is how often gRPC's xDS clients ping an idle management server, to
	// notice a connection that died silently.
	keepaliveTime = 5 * time.Minute
	// keepaliveTimeout is gRPC's default.
	keepaliveTimeout = 20 * time.Second
	// minConnectTimeout is half of gRPC's default: less than the 15 s after which the clients of a relay, which
	// wait for it, take a resource not to exist.
	minConnectTimeout = 10 * time.Second
	// maxMessageSize leaves room for SotW responses of some hundred thousand clusters, and bounds
	// what a server can make the client hold.
	maxMessageSize = 64 << 20
)

// Conns are the connections of one client, at most one to each server. It is safe for
// concurrent use.
type Conns struct {
	backoff backoff.Config
	dial    []grpc.DialOption

	mu sync.Mutex
	// inUse is keyed by bootstrap.Server.Key.
	inUse map[string]*Conn
}

// NewConns returns an empty set of connections. The backoff and the options are for every
// connection.
func NewConns(backoff backoff.Config, dial []grpc.DialOption) *Conns {
	return &Conns{backoff: backoff, dial: dial, inUse: make(map[string]*Conn)}
}

// Use returns the connection to a server, which the caller has to Release.
func (c *Conns) Use(server *bootstrap.Server) *Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.inUse[server.Key()]
	if conn == nil {
		conn = &Conn{conns: c, server: server}
		c.inUse[server.Key()] = conn
	}
	conn.users++
	return conn
}

// A Conn is the gRPC channel to a server, which is made at the first attempt. The streams to
// the server, of ADS and of load reports, share it.
type Conn struct {
	conns  *Conns
	server *bootstrap.Server
	users  int // guarded by Conns.mu

	// mu guards what follows. It is held while credentials are built.
	mu      sync.Mutex
	cc      *grpc.ClientConn
	release func() // of the credentials
}

// Release ends a use of the connection. The last one closes it.
func (c *Conn) Release() {
	c.conns.mu.Lock()
	c.users--
	last := c.users == 0
	if last {
		delete(c.conns.inUse, c.server.Key())
	}
	c.conns.mu.Unlock()
	if !last {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cc != nil {
		c.cc.Close()
		c.release()
	}
}

// Open returns the gRPC channel, which the first call makes.
func (c *Conn) Open() (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cc != nil {
		return c.cc, nil
	}
	credentials, release, err := c.server.DialOptions()
	if err != nil {
		return nil, err
	}
	cc, err := grpc.NewClient(c.server.URI, slices.Concat(credentials, []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: c.conns.backoff, MinConnectTimeout: minConnectTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageSize)),
	}, c.conns.dial)...)
	if err != nil {
		release()
		return nil, fmt.Errorf("cannot dial: %w", err)
	}
	c.cc, c.release = cc, release
	return cc, nil
}

// Pause waits before the next attempt. If the last one failed for want of a connection, it
// ends as soon as there is one: gRPC has its own backoff before it connects.
func (c *Conn) Pause(ctx context.Context, wait time.Duration) {
	if wait <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	c.mu.Lock()
	cc := c.cc
	c.mu.Unlock()
	if cc == nil || cc.GetState() != connectivity.TransientFailure {
		<-ctx.Done()
		return
	}
	for state := connectivity.TransientFailure; state != connectivity.Ready; state = cc.GetState() {
		if !cc.WaitForStateChange(ctx, state) {
			return
		}
	}
}
