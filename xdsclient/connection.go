package xdsclient

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

const (
	// keepaliveTime is how often gRPC's xDS clients ping an idle management
	// server, which notices a connection that died silently.
	keepaliveTime = 5 * time.Minute
	// keepaliveTimeout and minConnectTimeout are gRPC's defaults.
	keepaliveTimeout  = 20 * time.Second
	minConnectTimeout = 20 * time.Second
)

// connection is the gRPC channel to a server. It is made at the first attempt, and
// shared by the streams to the server, of ADS and of load reports.
type connection struct {
	server *bootstrap.Server
	// users is guarded by XDSClient.mu.
	users int

	// mu guards what follows. It is held while credentials are read, so that it is
	// never taken under XDSClient.mu.
	mu      sync.Mutex
	cc      *grpc.ClientConn
	release func()
}

// connect returns the connection to a server until disconnect. The caller holds
// c.mu.
func (c *XDSClient) connect(server *bootstrap.Server) *connection {
	conn := c.connections[server.Key()]
	if conn == nil {
		conn = &connection{server: server}
		c.connections[server.Key()] = conn
	}
	conn.users++
	return conn
}

// disconnect ends the use of a connection. The last one to go closes it.
func (c *XDSClient) disconnect(conn *connection) {
	c.mu.Lock()
	conn.users--
	last := conn.users == 0
	if last {
		delete(c.connections, conn.server.Key())
	}
	c.mu.Unlock()
	if last {
		conn.close()
	}
}

// open returns the gRPC channel, which it makes unless there is one.
func (c *connection) open(o *options) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cc != nil {
		return c.cc, nil
	}
	bundle, release, err := c.server.Credentials()
	if err != nil {
		return nil, err
	}
	cc, err := grpc.NewClient(c.server.URI, append([]grpc.DialOption{
		grpc.WithCredentialsBundle(bundle),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: o.backoff, MinConnectTimeout: minConnectTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
	}, o.dial...)...)
	if err != nil {
		release()
		return nil, fmt.Errorf("cannot dial: %w", err)
	}
	c.cc, c.release = cc, release
	return cc, nil
}

// pause waits before the next attempt. If the last one failed because there was
// no connection, it waits no longer than until there is one: gRPC, too, backs off
// before it connects.
func (c *connection) pause(ctx context.Context, wait time.Duration) {
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

// close is for when nobody uses the connection any more.
func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cc != nil {
		c.cc.Close()
		c.release()
	}
}
