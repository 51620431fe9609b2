package grpcbridge

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/credentials"
)

// UsesXDS reports whether the credentials of a channel leave the security of its
// connections to the control plane (gRFC A29), as those of package
// google.golang.org/grpc/credentials/xds do. Either argument may be nil.
func UsesXDS(creds credentials.TransportCredentials, bundle credentials.Bundle) bool {
	if bundle != nil {
		creds = bundle.TransportCredentials()
	}
	x, ok := creds.(interface{ UsesXDS() bool })
	return ok && x.UsesXDS()
}

// WithCredentials returns the options with credentials for the SubConn alone, in place of the
// channel's. The field is deprecated, but there is no other public way; a test shows that
// gRPC obeys it.
func WithCredentials(opts balancer.NewSubConnOptions, b credentials.Bundle) balancer.NewSubConnOptions {
	//lint:ignore SA1019 See above.
	opts.CredsBundle = b
	return opts
}
