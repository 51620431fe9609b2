// Package dynxds gives gRPC-Go clients xDS: import it for its side effect,
// dial a target of the scheme "xds", and point GRPC_XDS_BOOTSTRAP at a
// bootstrap file.
//
//	import _ "github.com/dynxds/dynxds"
//
//	conn, err := grpc.NewClient("xds:///echo.example.com", …)
//
// RPCs on the channel are then routed, filtered and balanced as the control
// plane says. The scheme "dynxds" means the same, for processes that also
// link gRPC-Go's own xds package. Where there is no bootstrap, or the control
// plane does not know the target, DNS resolves it.
//
// The package holds no logic. It registers the schemes (package resolver),
// the load-balancing policies (balancer) and the HTTP filters (httpfilter)
// with gRPC and with each other, and offers DialOptions for programs that
// would rather pass something than import something.
package dynxds

import (
	"google.golang.org/grpc"

	_ "github.com/dynxds/dynxds/httpfilter/fault" // these register the filters
	_ "github.com/dynxds/dynxds/httpfilter/headermutation"
	_ "github.com/dynxds/dynxds/httpfilter/localratelimit"
	_ "github.com/dynxds/dynxds/httpfilter/rbac"
	_ "github.com/dynxds/dynxds/httpfilter/router"
	_ "github.com/dynxds/dynxds/httpfilter/statefulsession"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/resolver"
)

func init() { resolver.Register() }

// DialOptions returns the dial options that make a channel an xDS channel by
// gRPC's public API alone. They are for a program that gives the bootstrap in
// memory, or whose version of gRPC no longer has the hook that the blank
// import relies on (it logs one error if so); with the hook, blank import and
// DialOptions give the same behaviour.
//
// Pass them after the program's own interceptors. Channels whose target has
// another scheme are left alone, and one result may serve any number of
// channels.
//
//	opts := append(dynxds.DialOptions(dynxds.WithBootstrap(json)), grpc.WithTransportCredentials(…))
//	conn, err := grpc.NewClient("xds:///echo.example.com", opts...)
func DialOptions(opts ...Option) []grpc.DialOption {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	builders := resolver.EnvironmentBuilders()
	if o.bootstrap != nil {
		builders = resolver.NewBuilders(o.bootstrap)
	}
	return append(grpcbridge.DialOptions(), grpc.WithResolvers(builders...))
}

// An Option changes what DialOptions returns.
type Option func(*options)

type options struct{ bootstrap []byte }

// WithBootstrap gives the bootstrap in memory, in place of the one that the
// environment names. A faulty one fails the channel's RPCs with an error that
// lists its faults, as a faulty file does; resolver.NewBuilder returns that
// error at once.
func WithBootstrap(json []byte) Option {
	return func(o *options) { o.bootstrap = json }
}
