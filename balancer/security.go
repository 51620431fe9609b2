package balancer

import (
	"fmt"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

// mustSecure reports whether a cluster, which may be nil, has to be secured on the channel:
// RPCs are not sent in plaintext instead.
func (r *root) mustSecure(c *xdsresource.Cluster) bool {
	return r.usesXDS && c != nil && c.Security != nil
}

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
	return fmt.Errorf("dynxds: cluster %q asks for security that this client cannot give, and RPCs are not sent in plaintext instead; "+
		"take it out of the Cluster, or dial without credentials of google.golang.org/grpc/credentials/xds, which obey it",
		c.Name)
}
