package grpcbridge

import "google.golang.org/grpc/credentials"

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
