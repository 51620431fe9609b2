package transport

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"

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

// A Conn is the gRPC channel to a server, which is made at the first attempt, while the connection is in use. The streams to
// the server, of ADS and of load reports, share it. It is safe for concurrent use.
type Conn struct {
	server  *bootstrap.Server
	backoff backoff.Config
	dial    []grpc.DialOption
	users   atomic.Int64

	// mu guards what follows. It is held while credentials are built.
	mu      sync.Mutex
	cc      *grpc.ClientConn
	release func() // of the credentials
}

// NewConn returns a connection that is not in use. The options come after its own.
func NewConn(server *bootstrap.Server, backoff backoff.Config, dial []grpc.DialOption) *Conn {
	return &Conn{server: server, backoff: backoff, dial: dial}
}

// Use begins a use of the connection, which the caller has to Release. It never blocks.
func (c *Conn) Use() { c.users.Add(1) }

// Release ends a use of the connection. The last one closes the channel, unless another use has begun.
func (c *Conn) Release() {
	if c.users.Add(-1) > 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cc != nil && c.users.Load() == 0 {
		c.cc.Close()
		c.release()
		c.cc = nil
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
	cc, err := grpc.NewClient(target(c.server.URI), slices.Concat(credentials, []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: c.backoff, MinConnectTimeout: minConnectTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageSize)),
	}, c.dial)...)
	if err != nil {
		release()
		return nil, fmt.Errorf("cannot dial: %w", err)
	}
	c.cc, c.release = cc, release
	return cc, nil
}

// target returns what to dial for a server_uri. If the program has made xDS the default scheme, a server_uri without a
// scheme would have the client ask itself where its server is: DNS knows.
func target(uri string) string {
	u, err := url.Parse(uri)
	if scheme := resolver.GetDefaultScheme(); (scheme == "xds" || scheme == "dynxds") && (err != nil || resolver.Get(u.Scheme) == nil) {
		return "dns:///" + uri
	}
	return uri
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
