package balancer

import (
	"fmt"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

// mustSecure reports whether RPCs to the cluster, which may be nil, must not be sent in
// plaintext.
func (r *root) mustSecure(c *xdsresource.Cluster) bool { return r.usesXDS && c.AsksForSecurity() }

// anyMustSecure reports the same of the cluster or one under it.
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

// errInsecure is what RPCs fail with if the cluster has to be secured.
func errInsecure(c *xdsresource.Cluster) error {
	return fmt.Errorf("dynxds: cluster %q asks for security that this client cannot give, and RPCs are not sent in plaintext instead: %v; "+
		"take it out of the Cluster, or dial without credentials of google.golang.org/grpc/credentials/xds, which obey it",
		c.Name, c.TransportSocket)
}
