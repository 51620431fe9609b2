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
// plane does not know the target, DNS resolves it, but not on channels that leave
// their security to the control plane (google.golang.org/grpc/credentials/xds).
// Those send nothing in plaintext to a cluster that asks for more.
//
// The package holds no logic. It registers the schemes (package resolver), which
// brings the load-balancing policies (balancer) and the HTTP filters
// (httpfilter/builtin) along, and offers DialOptions for programs that would
// rather pass something than import something.
package dynxds

import (
	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
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
	o := apply(opts)
	builders := resolver.EnvironmentBuilders()
	if o.bootstrap != nil {
		builders = resolver.NewBuilders(o.bootstrap)
	}
	return append(grpcbridge.DialOptions(), grpc.WithResolvers(builders...))
}

// SetConstraints sets the dynamic parameter constraints (xRFC TP2) that the program
// has of its own, by type of resource: which variants of the resources its channels
// are to use. It is for what a program finds out as it runs, as the shards that it
// was assigned:
//
//	shards, err := dynparam.New(dynparam.Require("shards", dynparam.InRanges(
//		dynparam.Range{Min: 4, Max: 6}, dynparam.Range{Min: 11, Max: 15})))
//	…
//	clusters, err := dynparam.NewByType(map[string]dynparam.Constraints{
//		"envoy.config.cluster.v3.Cluster": shards,
//	})
//	…
//	err = dynxds.SetConstraints(clusters)
//
// They replace those of the last call, hold for all channels of the process, now and
// later, and move the ones that are open to the new variants without failing an
// RPC. Constraints by key from a control plane's DPDS resource win over them, and
// they win over those of the bootstrap. The zero ByType takes them back.
//
// WithBootstrap restricts the call to channels with that bootstrap; where both have
// something to say of a key, the call with the bootstrap wins. The error lists the
// faults of the bootstrap; without one there is none.
func SetConstraints(constraints dynparam.ByType, opts ...Option) error {
	return resolver.SetConstraints(constraints, apply(opts).bootstrap)
}

// An Option changes what the functions of the package do.
type Option func(*options)

type options struct{ bootstrap []byte }

func apply(opts []Option) (o options) {
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// WithBootstrap gives the bootstrap in memory, in place of the one that the
// environment names. A faulty one fails the channel's RPCs with an error that
// lists its faults, as a faulty file does; resolver.NewBuilder returns that
// error at once.
func WithBootstrap(json []byte) Option {
	return func(o *options) { o.bootstrap = json }
}
