package locality

import (
	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/balancer/internal/random"
	"github.com/dynxds/dynxds/balancer/internal/ringhash"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// endpointPolicy picks among the endpoints of a locality.
type endpointPolicy interface {
	tree.Policy
	// Update sets the endpoints, and the configuration as JSON, which may be empty.
	Update(endpoints []xdsresource.Endpoint, config string)
}

// newEndpointPolicy returns the policy of a name in xdsresource.Cluster: one of ours, or one
// registered with gRPC. An unknown name gives a policy that fails with an error that names it.
func newEndpointPolicy(env *tree.Env, name string, changed func()) endpointPolicy {
	switch name {
	case xdsresource.PolicyRingHash:
		return ringhash.New(env, changed)
	case xdsresource.PolicyMaglev:
		return ringhash.NewMaglev(env, changed)
	case xdsresource.PolicySlowStart:
		return random.NewSlowStart(env, changed)
	case xdsresource.PolicyRandom:
		return random.New(env, changed)
	default:
		return leaf.New(env, name, leaf.ForLocality, changed)
	}
}
