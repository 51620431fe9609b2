package balancer

import (
	"time"

	grpcbalancer "google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/internal/clustertls"
)

// Linger is how long a connection stays open after its last use.
const Linger = linger

// Name is the policy's name in gRPC's registry.
const Name = policyName

// SetLinger says how long the connections of a new policy linger.
func SetLinger(policy grpcbalancer.Balancer, d time.Duration) {
	r := policy.(*root)
	r.env.Pool = conns.NewPool(r.cc, r.loop.Post, d)
}

// UseCredentials gives the channel of a new policy credentials.
func UseCredentials(policy grpcbalancer.Balancer, pool *clustertls.Pool) {
	policy.(*root).env.TLS = pool
}
