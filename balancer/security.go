package balancer

import (
	"fmt"

	"google.golang.org/grpc/credentials"

	"github.com/dynxds/dynxds/internal/xdsresource"
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

// MustSecure reports whether a cluster, which may be nil, asks for security that it has
// to have on a channel for which UsesXDS holds: RPCs are not sent in plaintext instead.
func MustSecure(usesXDS bool, c *xdsresource.Cluster) bool {
	return usesXDS && c != nil && c.TransportSocket != nil
}

func (r *root) mustSecure(c *xdsresource.Cluster) bool { return MustSecure(r.usesXDS, c) }

// anyMustSecure reports whether the cluster or one under it has to be secured.
func (r *root) anyMustSecure(s *ClusterState) bool {
	if !r.usesXDS || s.Underlying == nil {
		return r.mustSecure(s.Cluster)
	}
	for _, underlying := range s.Underlying.States.All {
		if r.mustSecure(underlying.Cluster) {
			return true
		}
	}
	return r.mustSecure(s.Cluster)
}

// errInsecure is what RPCs to a cluster fail with that has to be secured.
func errInsecure(c *xdsresource.Cluster) error {
	return fmt.Errorf("dynxds: cluster %q asks for security that this client cannot give, and RPCs are not sent in plaintext instead: %v; "+
		"take it out of the Cluster, or dial without credentials of google.golang.org/grpc/credentials/xds, which obey it",
		c.Name, c.TransportSocket)
}
