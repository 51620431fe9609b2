package xdsclient

import (
	"context"
	"fmt"
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

// connection is the gRPC channel to a server. It is made at the first attempt.
// For use by one goroutine.
type connection struct {
	cc      *grpc.ClientConn
	release func()
}

// open makes the gRPC channel unless there is one.
func (c *connection) open(server *bootstrap.Server, o *options) error {
	if c.cc != nil {
		return nil
	}
	bundle, release, err := server.Credentials()
	if err != nil {
		return err
	}
	c.cc, err = grpc.NewClient(server.URI, append([]grpc.DialOption{
		grpc.WithCredentialsBundle(bundle),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: o.backoff, MinConnectTimeout: minConnectTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
	}, o.dial...)...)
	if err != nil {
		release()
		return fmt.Errorf("cannot dial: %w", err)
	}
	c.release = release
	return nil
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
	if c.cc == nil || c.cc.GetState() != connectivity.TransientFailure {
		<-ctx.Done()
		return
	}
	for state := connectivity.TransientFailure; state != connectivity.Ready; state = c.cc.GetState() {
		if !c.cc.WaitForStateChange(ctx, state) {
			return
		}
	}
}

func (c *connection) close() {
	if c.cc != nil {
		c.cc.Close()
		c.release()
	}
}
